package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/host"
	"github.com/moai-dev/terraform-provider-moai/internal/service"
)

// claim refuses a machine that belongs to somebody else, or on which somebody else has something at our places. It only
// reads.
func (i *installer) claim(ctx context.Context) error {
	m, err := i.host.ReadMarker(ctx)
	if err != nil {
		return err
	}
	if m == nil && i.fresh {
		return i.vacant(ctx)
	}
	if markerStatus(m, i.fleet.Name(), i.name) == stForeign {
		return &foreignError{host: i.host.String(), marker: *m, fleet: i.fleet.Name(), coords: i.node.Coordinates()}
	}
	return nil
}

// foreignError says that a machine belongs to another fleet or resource.
type foreignError struct {
	host   string
	marker host.Marker
	fleet  string
	coords fleet.Coordinates
}

// Error implements error.
func (e *foreignError) Error() string {
	return fmt.Sprintf("%s: %s says that this machine belongs to fleet %q, resource %s", e.host, host.MarkerPath, e.marker.Fleet, e.marker.Resource)
}

// Explain implements diagnose.Explained.
func (e *foreignError) Explain() (summary, fix string) {
	if e.marker.Fleet != e.fleet {
		return "Machine belongs to another fleet", fmt.Sprintf(
			"A machine belongs to one fleet. If this configuration is that fleet, set fleet = %q in the provider block; else destroy its moai_node in fleet %q first. Nothing was changed",
			e.marker.Fleet, e.marker.Fleet)
	}
	name := strings.TrimPrefix(e.marker.Resource, "moai_node.")
	there := e.coords
	there.Name = name
	return "Machine belongs to another resource", fmt.Sprintf(
		"If both mean the same machine, call this node %q and import it: terraform import <address> '%s'. Nothing was changed", name, there.ImportID())
}

// early are the only things of ours that can be there without a marker: the lock's fence, which is taken before the marker
// is written, and what a write of the marker that was interrupted leaves.
func early(name string) bool {
	return name == "fence" || name == "fence.new" || strings.HasPrefix(name, ".moai-")
}

// vacant refuses a machine without a marker that has something where the node's files go. Destroying the node would
// remove it.
func (i *installer) vacant(ctx context.Context) error {
	for _, dir := range trees {
		names, err := i.host.List(ctx, dir)
		if err != nil {
			return err
		}
		if k := slices.IndexFunc(names, func(n string) bool { return !early(n) }); k >= 0 {
			return &strangerError{host: i.host.String(), dir: dir, name: names[k]}
		}
	}
	files, units, err := i.host.Inspect(ctx, []string{unitPath}, []string{unitName})
	if err != nil {
		return err
	}
	s := service.Service{Owner: owner(i.fleet.Name(), i.name), Unit: unitName}
	return s.CheckOwner(ctx, i.host, service.Found{Unit: units[0], UnitFile: files[0]})
}

// strangerError says that a machine without a marker has something at a place of ours.
type strangerError struct{ host, dir, name string }

// Error implements error.
func (e *strangerError) Error() string {
	return fmt.Sprintf("%s: %s/%s is there, and %s does not say whose it is", e.host, e.dir, e.name, host.MarkerPath)
}

// Explain implements diagnose.Explained.
func (e *strangerError) Explain() (summary, fix string) {
	return "Machine has something else in " + e.dir, fmt.Sprintf(
		"The node's own files go there, and would be removed with it. Move %s away, or remove it if nobody needs it. Nothing was changed", e.dir)
}
