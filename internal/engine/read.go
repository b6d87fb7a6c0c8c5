package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
	"github.com/moai-dev/terraform-provider-moai/internal/service"
)

const keptText = "The last known state is kept: an engine on a machine that cannot be reached is not gone."

// Read implements resource.Resource. It drops the state only on proof: the node's
// own machine answers, and nothing of the engine is on it.
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
	importing := m.Kind.IsNull()
	m.Node = noderef.Follow(r.fleet, m.Node)
	n := r.fleet.Node(noderef.Decode(m.Node).Coordinates)
	i, err := openInstaller(ctx, r.fleet, n)
	if err == nil && importing {
		resp.Diagnostics.Append(r.recover(ctx, i, &m)...)
		if resp.Diagnostics.HasError() {
			return
		}
	}
	gone := false
	if err == nil {
		gone, err = r.look(ctx, i, &m)
	}
	switch {
	case err != nil && (importing || whole.Err() != nil):
		sub := subject("read the engine", n.Coordinates())
		sub.Importing = importing
		resp.Diagnostics.Append(diagnose.Error(sub, err))
	case err != nil:
		resp.Diagnostics.Append(diagnose.Warning(subject("read the engine", n.Coordinates()), err, keptText))
		resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
	case gone:
		resp.State.RemoveResource(ctx)
	default:
		resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
	}
}

// look compares the host with what m says belongs there, and writes it into m.
func (r *Resource) look(ctx context.Context, i *installer, m *model) (gone bool, err error) {
	k, err := engines.Lookup(m.Kind.ValueString())
	if err != nil {
		return false, err
	}
	s, err := m.spec(k)
	if err != nil {
		return false, err
	}
	d, err := desire(r.fleet.Name(), k, s, noderef.Decode(m.Node).Coordinates)
	if err != nil {
		return false, err
	}
	found, registered, asked, err := i.observe(ctx, d)
	if err != nil {
		return false, err
	}
	if found.Gone() && asked && registered == nil {
		return true, nil
	}
	st := status{registration: service.Unresponsive}
	if st.Status, err = d.service.Look(ctx, i.host, found); err != nil {
		return false, err
	}
	if asked {
		st.registration = registrationStatus(registered, d.registration)
	}
	m.Installed = installedObject(st)
	if m.Ready.IsNull() {
		m.Ready = types.BoolValue(st == healthy)
	}
	return false, nil
}

// recover reads an imported engine from the record beside it.
func (r *Resource) recover(ctx context.Context, i *installer, m *model) diag.Diagnostics {
	var diags diag.Diagnostics
	ref := noderef.Decode(m.Node)
	nothing := func(format string, args ...any) diag.Diagnostics {
		diags.Append(diagnose.AtError(path.Root("name"), "Nothing to import", fmt.Sprintf(format, args...)))
		return diags
	}
	b, err := i.host.ReadFile(ctx, configPath(m.Name.ValueString()))
	if errors.Is(err, fs.ErrNotExist) {
		return nothing("The node %s has no engine %q of ours.", ref.Name, m.Name.ValueString())
	}
	if err != nil {
		diags.Append(diagnose.Error(subject("import the engine", ref.Coordinates), err))
		return diags
	}
	rec, err := parseRecord(b)
	if err != nil {
		return nothing("%s on the node %s cannot be read: %s.", configPath(m.Name.ValueString()), ref.Name, err)
	}
	if rec.Fleet != r.fleet.Name() {
		return nothing("The engine belongs to fleet %q, not to %q.", rec.Fleet, r.fleet.Name())
	}
	k, err := engines.Lookup(rec.Spec.Kind)
	if err != nil {
		return nothing("%s.", upper(err.Error()))
	}
	id, err := i.node.MachineID(ctx)
	if err != nil {
		diags.Append(diagnose.Error(subject("import the engine", ref.Coordinates), err))
		return diags
	}
	ref.MachineID = id
	if s, err := i.node.Manage().Status(ctx); err == nil {
		ref.PublicKey = s.PublicKey
	}
	m.Node = noderef.Encode(ref)
	rec.Spec = k.Defaults(rec.Spec) // a record of an earlier version may say less
	m.setSpec(ctx, rec.Spec, k)
	d, err := desire(r.fleet.Name(), k, rec.Spec, fleet.Coordinates{Name: ref.Name})
	if err != nil {
		return nothing("%s.", upper(err.Error()))
	}
	m.ID = types.StringValue(ref.Name + "/" + rec.Spec.Name)
	m.setPlanned(d)
	return diags
}
