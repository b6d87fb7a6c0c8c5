package node

import (
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/host"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
)

// Words of the status attributes.
const (
	stOK       = "ok"
	stChanged  = "changed"
	stMissing  = "missing"
	stForeign  = "foreign"
	stPending  = "pending" // a change was begun and not finished
	stActive   = "active"
	stOutdated = "outdated" // runs, but with another binary or configuration than what is on disk
	stEnabled  = "enabled"
	stDisabled = "disabled"
)

// status is what became of what was installed, one word for each part.
type status struct {
	moaid   string
	unit    string
	config  string
	marker  string
	key     string
	service string
	boot    string
}

// healthy is what every plan asks for.
var healthy = status{moaid: stOK, unit: stOK, config: stOK, marker: stOK, key: stOK, service: stActive, boot: stEnabled}

// observed is what was found on a host.
type observed struct {
	binary host.FileState
	unit   host.FileState
	config host.FileState
	key    host.FileState
	show   host.UnitState
	marker *host.Marker
	daemon *api.Status // nil when the daemon did not answer
}

// absent reports whether a host provably holds nothing of a node.
func (o observed) absent() bool {
	return o.marker == nil && !o.binary.Exists() && !o.unit.Exists() && !o.config.Exists() && !o.show.Found()
}

// judge compares what was found with what belongs there.
func (o observed) judge(fleetName, name string, d desired) status {
	s := status{
		unit:   fileStatus(o.unit, d.unit),
		config: fileStatus(o.config, d.config),
		marker: markerStatus(o.marker, fleetName, name),
		moaid:  stOK,
		key:    stOK,
		boot:   stDisabled,
	}
	switch {
	case !o.binary.Exists():
		s.moaid = stMissing
	case o.marker != nil && o.marker.MoaidSHA256 != "" && o.binary.SHA256 != o.marker.MoaidSHA256,
		o.binary.Mode != 0o755, o.binary.Owner != "root":
		s.moaid = stChanged
	}
	if !o.key.Exists() {
		s.key = stMissing
	}
	if o.show.Enabled() {
		s.boot = stEnabled
	}
	s.service = o.serviceStatus(name)
	return s
}

func (o observed) serviceStatus(name string) string {
	switch {
	case !o.show.Found():
		return stMissing
	case !o.show.Active():
		return o.show.ActiveState
	case o.show.NeedDaemonReload,
		o.daemon != nil && o.daemon.ContentSHA256 != "" && o.binary.Exists() && o.daemon.ContentSHA256 != o.binary.SHA256,
		o.daemon != nil && o.daemon.Node != name:
		return stOutdated
	case o.daemon == nil:
		return "unresponsive"
	}
	return stActive
}

func fileStatus(found host.FileState, want host.File) string {
	switch {
	case !found.Exists():
		return stMissing
	case !want.Matches(found):
		return stChanged
	}
	return stOK
}

func markerStatus(m *host.Marker, fleetName, name string) string {
	switch {
	case m == nil:
		return stMissing
	case m.Fleet != fleetName || m.Resource != resourceName(name):
		return stForeign
	case m.MoaidSHA256 == "":
		return stPending
	}
	return stOK
}

// needsRestart reports whether a daemon runs that is not what belongs there.
func (s status) needsRestart() bool {
	return slices.ContainsFunc([]string{s.moaid, s.unit, s.config, s.key}, func(w string) bool { return w != stOK }) ||
		s.service != stActive || s.marker == stPending
}
