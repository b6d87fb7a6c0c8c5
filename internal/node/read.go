package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/payload"
)

const keptText = "The last known state is kept: a machine that cannot be reached is not gone."

// Read implements resource.Resource. It drops the state only on proof: the same machine answers, and nothing of the node
// is on it.
func (r *Resource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	ctx = r.fleet.Context(ctx)
	var m model
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	timeout, diags := m.Timeouts.Read(ctx, defaultReadTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	n := r.fleet.Register(m.ref().Coordinates)
	importing := m.MachineID.IsNull()
	o, err := r.look(ctx, n, &m)
	var other *fleet.IdentityError
	switch {
	case err != nil && (importing || whole.Err() != nil):
		sub := subject("read the machine", n.Coordinates())
		sub.Importing = importing
		resp.Diagnostics.Append(diagnose.Error(sub, err))
		return
	case errors.As(err, &other):
		resp.Diagnostics.Append(diagnose.Warning(subject("read the machine", n.Coordinates()), err, "The last known state is kept."))
		return
	case err != nil:
		resp.Diagnostics.Append(diagnose.Warning(subject("read the machine", n.Coordinates()), err, keptText))
		return
	}
	if importing {
		if r.refuseImport(o, m, resp); resp.Diagnostics.HasError() {
			return
		}
	} else if o.absent() {
		resp.State.RemoveResource(ctx)
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// look asks the machine and writes what it says into m.
func (r *Resource) look(ctx context.Context, n *fleet.Node, m *model) (observed, error) {
	i, err := openInstaller(ctx, r.fleet, n, r.payload)
	if err != nil {
		return observed{}, err
	}
	f, err := n.Facts(ctx)
	if err != nil {
		return observed{}, err
	}
	o, err := i.observe(ctx)
	if err != nil {
		return observed{}, err
	}
	if m.MachineID.IsNull() {
		if err := m.recoverFabric(ctx, i); err != nil {
			return observed{}, err
		}
		// The machine's name for itself is known now, and so are the addresses that its configuration was made for.
		m.MachineID = types.StringValue(f.MachineID)
		r.fleet.Register(m.ref().Coordinates)
	}
	d, err := desire(r.fleet.Name(), n.Coordinates())
	if err != nil {
		return observed{}, err
	}
	m.setFacts(f)
	m.ID = m.Name
	s := o.judge(r.fleet.Name(), m.Name.ValueString(), d)
	m.setStatus(s)
	m.MoaidVersion = textOrNull(payload.Version(o.binary.SHA256))
	if o.daemon != nil {
		m.PublicKey = textOrNull(o.daemon.PublicKey)
	}
	if m.Ready.IsNull() {
		m.Ready = types.BoolValue(s == healthy)
	}
	return o, nil
}

// recoverFabric reads the fabric of an imported node from the daemon's configuration. Listening on every address is what
// a node without fabric does.
func (m *model) recoverFabric(ctx context.Context, i *installer) error {
	b, err := i.host.ReadFile(ctx, configPath)
	if err != nil {
		return fmt.Errorf("read the daemon's configuration: %w", err)
	}
	var c daemonConfig
	if err := json.Unmarshal(b, &c); err != nil {
		return fmt.Errorf("%s on the machine: %w", configPath, err)
	}
	coords := m.ref().Coordinates
	for _, l := range c.Listen {
		e, err := fleet.ParseEndpoint(l)
		if err != nil {
			return fmt.Errorf("%s on the machine: listen: %w", configPath, err)
		}
		coords.Fabric = append(coords.Fabric, e)
	}
	if (fleet.Coordinates{Fabric: coords.Fabric}).SameFabric(fleet.Coordinates{Fabric: []fleet.Endpoint{{Address: "0.0.0.0"}}}) {
		coords.Fabric = nil
	}
	m.setCoordinates(coords)
	return nil
}

func (r *Resource) refuseImport(o observed, m model, resp *resource.ReadResponse) {
	sub := subject("import the node", m.ref().Coordinates)
	switch {
	case o.marker == nil:
		resp.Diagnostics.Append(diagnose.Refusal(sub, "Nothing to import", fmt.Sprintf("The machine %s carries no node of any fleet. Remove the import and apply.", m.ref().Host)))
	case o.marker.Fleet != r.fleet.Name():
		resp.Diagnostics.Append(diagnose.Refusal(sub, "Machine belongs to another fleet", fmt.Sprintf(
			"The machine belongs to fleet %q, and this provider manages fleet %q. Set fleet = %q in the provider block, or destroy the node in its own fleet first.",
			o.marker.Fleet, r.fleet.Name(), o.marker.Fleet)))
	case o.marker.Resource != resourceName(m.Name.ValueString()):
		resp.Diagnostics.Append(diagnose.AtError(path.Root("name"), "Machine has another name", fmt.Sprintf(
			"The machine belongs to %s of this fleet, not to %s. Import it under that name.", o.marker.Resource, resourceName(m.Name.ValueString()))))
	}
}
