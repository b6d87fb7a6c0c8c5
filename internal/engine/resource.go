package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/importid"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
)

// Default timeouts. Create: another run's lock (2 min), files and start (30 s), the engine's start (60 s) twice over.
// Delete: running requests (30 s), another run's lock (2 min). Read: one connection (10 s), two questions.
const (
	defaultTimeout     = 5 * time.Minute
	defaultReadTimeout = time.Minute
)

// Resource implements moai_engine.
type Resource struct {
	fleet *fleet.Fleet
}

var (
	_ resource.Resource                   = (*Resource)(nil)
	_ resource.ResourceWithConfigure      = (*Resource)(nil)
	_ resource.ResourceWithModifyPlan     = (*Resource)(nil)
	_ resource.ResourceWithValidateConfig = (*Resource)(nil)
	_ resource.ResourceWithImportState    = (*Resource)(nil)
)

// NewResource makes the resource.
func NewResource() resource.Resource { return &Resource{} }

// Metadata implements resource.Resource.
func (r *Resource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_engine"
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
	return diagnose.Subject{Doing: doing, Coordinates: c, Node: path.Root("node")}
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
	resp.Diagnostics.Append(r.apply(ctx, "create the engine", &m, func(partial model) {
		// From here on there is something to clean up, so the state has to know, whatever comes.
		resp.Diagnostics.Append(resp.State.Set(ctx, partial)...)
	})...)
	if !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
	}
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
	resp.Diagnostics.Append(r.apply(ctx, "update the engine", &m, func(model) {})...)
	if !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
	}
}

// apply brings the host to what m says and writes what came of it into m. began
// gets the state of an engine of which only the beginning exists.
func (r *Resource) apply(ctx context.Context, doing string, m *model, began func(model)) diag.Diagnostics {
	k, s, diags := checkedSpec(*m)
	if diags.HasError() {
		return diags
	}
	ref := noderef.Decode(m.Node)
	n := r.fleet.Node(ref.Coordinates)
	d, err := desire(r.fleet.Name(), k, s, ref.Coordinates)
	if err != nil {
		diags.Append(diagnose.Refusal(subject(doing, ref.Coordinates), "Engine cannot be planned", err.Error()+"."))
		return diags
	}
	promised := m.Ready // known if nothing of this change restarts the engine
	m.ID = types.StringValue(ref.Name + "/" + s.Name)
	m.setPlanned(d)
	partial := *m
	partial.Installed, partial.Ready = types.ObjectNull(installedType.AttrTypes), types.BoolValue(false)
	partial.settle()
	i, err := openInstaller(ctx, r.fleet, n)
	if err != nil {
		diags.Append(diagnose.Error(subject(doing, n.Coordinates()), err))
		return diags
	}
	out, err := i.install(ctx, d, func() { began(partial) })
	if err != nil {
		diags.Append(diagnose.Error(subject(doing, n.Coordinates()), err))
		return diags
	}
	m.Installed = installedObject(healthy)
	m.Ready = types.BoolValue(out.ready)
	switch {
	case out.ready:
	case promised.ValueBool():
		diags.Append(diagnose.AtError(path.Root("kind"), "Engine does not serve any more", fmt.Sprintf(
			"The change is made, and it needed no restart, but %s does not serve: %s. Look at its log lines and apply again.\n\nNode: %s", d.service.Unit, or(out.reason, "no reason given"), ref.Name)))
	default:
		diags.Append(diagnose.AtWarning(path.Root("kind"), "Engine is not ready yet", fmt.Sprintf(
			"%s runs, but does not serve yet: %s. Nothing has to be undone: apply again, and it goes on waiting.\n\nNode: %s", d.service.Unit, or(out.reason, "no reason given"), ref.Name)))
	}
	return diags
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
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
	ref := noderef.Decode(m.Node)
	n := r.fleet.Node(ref.Coordinates)
	k, s, diags := checkedSpec(m)
	if diags.HasError() {
		resp.Diagnostics.Append(diags...)
		return
	}
	d, err := desire(r.fleet.Name(), k, s, ref.Coordinates)
	if err != nil {
		resp.Diagnostics.Append(diagnose.Refusal(subject("remove the engine", ref.Coordinates), "Engine cannot be removed", err.Error()+"."))
		return
	}
	i, err := openInstaller(ctx, r.fleet, n)
	sub := subject("remove the engine", n.Coordinates())
	var other *fleet.IdentityError
	if errors.As(err, &other) {
		resp.Diagnostics.Append(diagnose.Notice(sub, "Another machine answers", fmt.Sprintf("%s. Nothing was removed from it: the engine went with its machine.", other)))
		return
	}
	if err == nil {
		err = i.uninstall(ctx, d, func(s string) { resp.Diagnostics.Append(diagnose.Notice(sub, "Engine was not removed completely", s)) })
	}
	if err != nil {
		resp.Diagnostics.Append(diagnose.NotRemoved(sub, "The engine", err))
	}
}

// ImportState implements resource.ResourceWithImportState.
func (r *Resource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	id, err := importid.Parse(req.ID)
	if err != nil {
		resp.Diagnostics.AddError("Invalid import id", fmt.Sprintf("%s.\n\nThe id has the form %s", upper(err.Error()), importid.EngineFormat))
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), id.Node.Name+"/"+id.Name)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), id.Name)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("node"), noderef.Encode(noderef.Ref{Coordinates: id.Node}))...)
}
