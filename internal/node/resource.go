package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
	"github.com/moai-dev/terraform-provider-moai/internal/facts"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/payload"
)

// Default timeouts. Create: a probe (30 s at most), 8 MB over a slow line (60 s), waiting for another run's lock (2 min),
// a start (60 s). Read: one connection (10 s), a probe.
const (
	defaultTimeout     = 5 * time.Minute
	defaultReadTimeout = time.Minute
)

// Resource implements moai_node.
type Resource struct {
	fleet   *fleet.Fleet
	payload *payload.Source
}

var (
	_ resource.Resource                = (*Resource)(nil)
	_ resource.ResourceWithConfigure   = (*Resource)(nil)
	_ resource.ResourceWithModifyPlan  = (*Resource)(nil)
	_ resource.ResourceWithImportState = (*Resource)(nil)
)

// NewResource returns a function that makes the resource, which installs binaries of p.
func NewResource(p *payload.Source) func() resource.Resource {
	return func() resource.Resource { return &Resource{payload: p} }
}

// Metadata implements resource.Resource.
func (r *Resource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_node"
}

// Schema implements resource.Resource.
func (r *Resource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = resourceSchema(ctx)
}

// Configure implements resource.ResourceWithConfigure.
func (r *Resource) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	f, err := fleet.FromProviderData(req.ProviderData)
	if err != nil {
		resp.Diagnostics.AddError("Provider is not configured", err.Error())
		return
	}
	r.fleet = f
}

func subject(doing string, c fleet.Coordinates) diagnose.Subject {
	return diagnose.Subject{Doing: doing, Coordinates: c}
}

// Create implements resource.Resource.
func (r *Resource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	ctx = r.fleet.Context(ctx)
	var m model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	timeout, diags := m.Timeouts.Create(ctx, defaultTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	n := r.fleet.Register(m.ref().Coordinates)
	f, err := n.Facts(ctx)
	if err != nil {
		resp.Diagnostics.Append(diagnose.Error(subject("look at the machine", n.Coordinates()), err))
		return
	}
	resp.Diagnostics.Append(refusals(m.expectation(), f, n.Coordinates())...)
	if resp.Diagnostics.HasError() {
		return
	}
	m.ID = m.Name
	m.setFacts(f)
	n = r.fleet.Register(m.ref().Coordinates)

	done := m // what a finished node looks like
	m.MoaidVersion, m.PublicKey, m.Installed, m.Ready = types.StringNull(), types.StringNull(), types.ObjectNull(installedType.AttrTypes), types.BoolValue(false)
	m.settle()
	err = r.install(ctx, n, f.Arch, true, &done, func() {
		// From here on there is something to clean up, so the state has to know, whatever comes.
		resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
	})
	if err != nil {
		resp.Diagnostics.Append(diagnose.Error(subject("install moaid", n.Coordinates()), err))
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, done)...)
}

// install brings the machine to what it shall be and writes what came of it into m.
func (r *Resource) install(ctx context.Context, n *fleet.Node, arch string, fresh bool, m *model, claimed func()) error {
	i, err := openInstaller(ctx, r.fleet, n, r.payload)
	if err != nil {
		return err
	}
	i.fresh = fresh
	running, version, err := i.install(ctx, arch, claimed)
	if err != nil {
		return err
	}
	m.MoaidVersion = types.StringValue(version)
	m.PublicKey = types.StringValue(running.PublicKey)
	m.setStatus(healthy)
	m.Ready = types.BoolValue(true)
	return nil
}

// Update implements resource.Resource.
func (r *Resource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	ctx = r.fleet.Context(ctx)
	var m model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	timeout, diags := m.Timeouts.Update(ctx, defaultTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	n := r.fleet.Register(m.ref().Coordinates)

	planned := m.PublicKey
	if m.MachineID.IsUnknown() {
		f, err := n.Facts(ctx)
		if err != nil {
			resp.Diagnostics.Append(diagnose.Error(subject("look at the machine", n.Coordinates()), err))
			return
		}
		m.setFacts(f)
	}
	if err := r.install(ctx, n, m.Arch.ValueString(), false, &m, func() {}); err != nil {
		resp.Diagnostics.Append(diagnose.Error(subject("bring moaid up to date", n.Coordinates()), err))
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
	if !planned.IsUnknown() && !planned.Equal(m.PublicKey) {
		resp.Diagnostics.Append(diagnose.Refusal(subject("bring moaid up to date", n.Coordinates()), "The daemon's key changed during apply",
			fmt.Sprintf("The daemon on %s has another key than when the plan was made. Nothing is lost: apply again, and links and routers will be told of the new key.", m.Name.ValueString())))
	}
}

// Delete implements resource.Resource.
func (r *Resource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	ctx = r.fleet.Context(ctx)
	var m model
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	timeout, diags := m.Timeouts.Delete(ctx, defaultTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	// The state's own coordinates: a replacement may have registered where the node will be next.
	n := r.fleet.At(m.ref().Coordinates)
	i, err := openInstaller(ctx, r.fleet, n, r.payload)
	sub := subject("remove moaid", n.Coordinates())
	var other *fleet.IdentityError
	switch {
	case errors.As(err, &other):
		resp.Diagnostics.Append(diagnose.Notice(sub, "Another machine answers", fmt.Sprintf(
			"%s. Nothing was removed from it. If the machine %s still exists somewhere, moaid is still on it: destroy what is in /opt/moai, /etc/moai and /var/lib/moai there by hand, and disable %s.",
			other, other.Want, unitName)))
		return
	case err == nil:
		err = i.uninstall(ctx, func(s string) { resp.Diagnostics.Append(diagnose.Notice(sub, "Nothing was removed", s)) })
	}
	if err != nil {
		resp.Diagnostics.Append(diagnose.NotRemoved(sub, "The node", err))
	}
}

// refusals are the reasons why a machine cannot be this node.
func refusals(e facts.Expect, f facts.Facts, c fleet.Coordinates) diag.Diagnostics {
	var diags diag.Diagnostics
	where := fmt.Sprintf("\n\nNode: %s\nHost: %s", c.Name, c.Host)
	if why := unsupported(f); why != "" {
		diags.Append(diagnose.AtError(path.Root("ssh").AtName("host"), "Machine cannot be a node", fmt.Sprintf("moaid cannot be installed on this machine: %s.%s", why, where)))
	}
	for _, m := range facts.Check(f, e) {
		diags.Append(diagnose.AtError(path.Root("expect").AtName(m.Attribute), "Machine is not what is expected", fmt.Sprintf(
			"expect.%s is %s, but the machine has %s: %s. %s. What it is:\n\n  %s%s",
			m.Attribute, m.Want, m.Got, describe(f), strings.TrimSuffix(m.Fix, "."), suggestion(f), where)))
	}
	return diags
}

// ImportState implements resource.ResourceWithImportState.
func (r *Resource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	c, err := fleet.ParseCoordinates(req.ID)
	if err != nil {
		resp.Diagnostics.AddError("Invalid import id", fmt.Sprintf("%s.\n\nThe id has the form %s", err, fleet.CoordinatesFormat))
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), c.Name)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), c.Name)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("plan_probe"), probeAuto)...)
	var m model
	m.setCoordinates(c)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("ssh"), m.SSH)...)
}
