package router

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
	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/importid"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
)

// Default timeouts. Create: another run's lock (2 min), files (10 s), one question a node, a start (30 s). Delete:
// running requests (45 s), another run's lock (2 min).
const (
	defaultTimeout     = 5 * time.Minute
	defaultReadTimeout = time.Minute
)

// Resource implements moai_router.
type Resource struct {
	fleet *fleet.Fleet
}

var (
	_ resource.Resource                = (*Resource)(nil)
	_ resource.ResourceWithConfigure   = (*Resource)(nil)
	_ resource.ResourceWithModifyPlan  = (*Resource)(nil)
	_ resource.ResourceWithImportState = (*Resource)(nil)
)

// NewResource makes the resource.
func NewResource() resource.Resource { return &Resource{} }

// Metadata implements resource.Resource.
func (r *Resource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_router"
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

// subjectOf says where an error belongs: to the router's own node, or to a node of
// a pair.
func subjectOf(doing string, own fleet.Coordinates, err error) diagnose.Subject {
	var peer *peerError
	if errors.As(err, &peer) {
		return diagnose.Subject{Doing: doing, Coordinates: peer.coord, Node: peer.at, At: peer.at}
	}
	return diagnose.Subject{Doing: doing, Coordinates: own, Node: path.Root("node")}
}

// diagnostic makes a diagnostic of an error.
func diagnostic(doing string, own fleet.Coordinates, err error) diag.Diagnostic {
	return diagnose.Error(subjectOf(doing, own, err), err)
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
	resp.Diagnostics.Append(r.apply(ctx, "create the router", &m, nil, func(partial model) {
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
	var m, old model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &old)...)
	timeout, diags := m.Timeouts.Update(ctx, defaultTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	planned := m.PublicKey
	var former []engineref.Ref
	if s, ok := old.spec(); ok {
		former = s.nodes()
	}
	resp.Diagnostics.Append(r.apply(ctx, "update the router", &m, former, func(model) {})...)
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
	if !planned.IsUnknown() && !planned.Equal(m.PublicKey) {
		resp.Diagnostics.Append(diagnose.Refusal(subjectOf("update the router", noderef.Decode(m.Node).Coordinates, nil), "The router's key changed during apply",
			"The router has another key than when the plan was made. Nothing is lost: its nodes trust the new one already. Apply again."))
	}
}

// apply brings host and nodes to what m says and writes what came of it into m.
// began gets the state of a router of which only the beginning exists.
func (r *Resource) apply(ctx context.Context, doing string, m *model, former []engineref.Ref, began func(model)) diag.Diagnostics {
	var diags diag.Diagnostics
	s, ok := m.spec()
	if !ok {
		diags.AddError("Router is not known", "The pairs of the router are not known at apply. This is a bug in the provider.")
		return diags
	}
	if none := s.keyless(); len(none) > 0 {
		diags.Append(diagnose.AtError(path.Root("pairs"), "Node has no key", fmt.Sprintf(
			"The daemon of %s has no public key yet, so that the router could not tell it from another machine. Apply the moai_node first.", strings.Join(none, ", "))))
		return diags
	}
	d, err := desire(r.fleet.Name(), s)
	if err != nil {
		diags.Append(diagnose.AtError(path.Root("pairs"), "Router cannot be configured", err.Error()+"."))
		return diags
	}
	url, err := endpoint(s.listen, s.node.Coordinates)
	if err != nil {
		diags.Append(diagnose.AtError(path.Root("listen"), "Invalid address", err.Error()+"."))
		return diags
	}
	m.ID, m.Endpoint = types.StringValue(s.node.Name+"/"+s.name), types.StringValue(url)
	partial := *m
	partial.PublicKey, partial.Ready = types.StringNull(), types.BoolValue(false)
	partial.Installed, partial.Trust = types.ObjectNull(installedType.AttrTypes), types.MapNull(types.StringType)
	n := r.fleet.Node(s.node.Coordinates)
	i, err := openInstaller(ctx, r.fleet, n)
	if err != nil {
		return append(diags, diagnostic(doing, n.Coordinates(), err))
	}
	key, err := i.install(ctx, s, d, former, func() { began(partial) })
	if err != nil {
		return append(diags, diagnostic(doing, n.Coordinates(), err))
	}
	m.PublicKey, m.Ready = types.StringValue(key), types.BoolValue(true)
	m.Installed, m.Trust = installedObject(healthy), s.healthyTrust()
	return diags
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
	s, _ := m.spec()
	n := r.fleet.Node(s.node.Coordinates)
	note := func(text string) {
		resp.Diagnostics.Append(diagnose.Notice(subjectOf("remove the router", n.Coordinates(), nil), "Router was not removed completely", text))
	}
	for _, err := range r.remove(ctx, n, s, note) {
		d := diagnose.NotRemoved(subjectOf("remove the router", n.Coordinates(), err), "The router", err)
		resp.Diagnostics.Append(d)
	}
}

func (r *Resource) remove(ctx context.Context, n *fleet.Node, s spec, note func(string)) []error {
	i, err := openInstaller(ctx, r.fleet, n)
	var other *fleet.IdentityError
	switch {
	case errors.As(err, &other):
		note(other.Error() + ". Nothing was removed from it: the router went with its machine.")
	case err != nil:
		return []error{err}
	default:
		if err := i.uninstall(ctx, s, s.removable(r.fleet.Name()), note); err != nil {
			return []error{err}
		}
	}
	return unpin(ctx, r.fleet, s, note)
}

// ImportState implements resource.ResourceWithImportState.
func (r *Resource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	id, err := importid.Parse(req.ID)
	if err != nil {
		resp.Diagnostics.AddError("Invalid import id", fmt.Sprintf("%s.\n\nThe id has the form %s", err, importid.RouterFormat))
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), id.Node.Name+"/"+id.Name)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), id.Name)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("node"), noderef.Encode(noderef.Ref{Coordinates: id.Node}))...)
}
