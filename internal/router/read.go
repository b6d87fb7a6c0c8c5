package router

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
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/config"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
	"github.com/moai-dev/terraform-provider-moai/internal/service"
	"github.com/moai-dev/terraform-provider-moai/internal/systemd"
)

const keptText = "The last known state is kept: what is on a machine that cannot be reached is not gone."

// Read implements resource.Resource. It drops the state only on proof: the node's
// own machine answers, and nothing of the router is on it.
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
	importing := m.Listen.IsNull()
	m.Node, m.Pairs = noderef.Follow(r.fleet, m.Node), followPairs(ctx, r.fleet, m.Pairs)
	n := r.fleet.Node(noderef.Decode(m.Node).Coordinates)
	i, err := openInstaller(ctx, r.fleet, n)
	gone := false
	if err == nil && importing {
		if resp.Diagnostics.Append(r.recover(ctx, i, &m)...); resp.Diagnostics.HasError() {
			return
		}
	}
	if err == nil {
		gone, err = r.look(ctx, i, &m)
	}
	switch {
	case err != nil && (importing || whole.Err() != nil):
		sub := subjectOf("read the router", n.Coordinates(), err)
		sub.Importing = importing
		resp.Diagnostics.Append(diagnose.Error(sub, err))
		return
	case err != nil:
		resp.Diagnostics.Append(diagnose.Warning(subjectOf("read the router", n.Coordinates(), err), err, keptText))
	case gone:
		resp.State.RemoveResource(ctx)
		return
	default:
		resp.Diagnostics.Append(r.lookTrust(ctx, &m)...)
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// look compares the host with what m says belongs there, and writes it into m.
func (r *Resource) look(ctx context.Context, i *installer, m *model) (gone bool, err error) {
	s, _ := m.spec()
	d, err := desire(r.fleet.Name(), s)
	if err != nil {
		// An imported router has no pairs to compare its configuration with.
		d = s.removable(r.fleet.Name())
	}
	found, err := d.service.Inspect(ctx, i.host)
	if err != nil {
		return false, err
	}
	if found.Gone() {
		return true, nil
	}
	st := status{key: service.Missing}
	if st.Status, err = d.service.Look(ctx, i.host, found); err != nil {
		return false, err
	}
	has, err := i.hasKey(ctx, s.name)
	if err != nil {
		return false, err
	}
	if has {
		key, err := i.publicKey(ctx, s.name)
		switch {
		case err != nil:
			st.key = service.Changed // it is there and cannot be read as a key
		case !m.PublicKey.IsNull() && key != m.PublicKey.ValueString():
			st.key = service.Changed
		default:
			st.key, m.PublicKey = service.OK, types.StringValue(key)
		}
	}
	m.Installed = installedObject(st)
	if m.Ready.IsNull() {
		m.Ready = types.BoolValue(st == healthy)
	}
	return false, nil
}

// lookTrust asks the nodes of the pairs.
func (r *Resource) lookTrust(ctx context.Context, m *model) diag.Diagnostics {
	var diags diag.Diagnostics
	s, ok := m.spec()
	if !ok || m.Pairs.IsNull() {
		return diags
	}
	found, silent := trusted(ctx, r.fleet, s, m.PublicKey.ValueString())
	for node, w := range found {
		if w != "" {
			continue
		}
		found[node] = service.Unresponsive
		if old, ok := m.Trust.Elements()[node].(types.String); ok {
			found[node] = old.ValueString()
		}
	}
	for _, err := range silent {
		diags.Append(diagnose.Warning(subjectOf("read the router's trust", s.node.Coordinates, err), err, keptText))
	}
	m.Trust = words(found)
	return diags
}

// removable is what is needed of a router to find and remove it: not its pairs.
func (s spec) removable(fleetName string) desired {
	own := systemd.Owner{Fleet: fleetName, Resource: resourceName(s.name), Writer: writer}
	d := desired{service: service.Service{Owner: own, Unit: unitName(s.name)}}
	d.service.Config.Path = configPath(s.name)
	return d
}

// recover reads an imported router's address from its configuration. Pairs are
// known there by name only; the next apply writes them.
func (r *Resource) recover(ctx context.Context, i *installer, m *model) diag.Diagnostics {
	var diags diag.Diagnostics
	ref := noderef.Decode(m.Node)
	name := m.Name.ValueString()
	b, err := i.host.ReadFile(ctx, configPath(name))
	if errors.Is(err, fs.ErrNotExist) {
		diags.Append(diagnose.AtError(path.Root("name"), "Nothing to import", fmt.Sprintf("The node %s has no router %q of ours.", ref.Name, name)))
		return diags
	}
	if err != nil {
		return append(diags, diagnostic("import the router", ref.Coordinates, err))
	}
	c, err := config.Parse(b)
	if err != nil {
		diags.Append(diagnose.AtError(path.Root("name"), "Nothing to import", fmt.Sprintf("%s on the node %s cannot be read: %s.", configPath(name), ref.Name, err)))
		return diags
	}
	d := spec{name: name}.removable(r.fleet.Name())
	found, err := d.service.Inspect(ctx, i.host)
	if err == nil {
		err = d.service.CheckOwner(ctx, i.host, found)
	}
	if err == nil {
		ref.MachineID, err = i.node.MachineID(ctx)
	}
	if err != nil {
		return append(diags, diagnostic("import the router", ref.Coordinates, err))
	}
	if s, err := i.node.Manage().Status(ctx); err == nil {
		ref.PublicKey = s.PublicKey
	}
	m.Node = noderef.Encode(ref)
	m.Listen = types.StringValue(c.Listen)
	m.ID = types.StringValue(ref.Name + "/" + name)
	if url, err := endpoint(c.Listen, ref.Coordinates); err == nil {
		m.Endpoint = types.StringValue(url)
	}
	return diags
}
