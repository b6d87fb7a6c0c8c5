package kvlink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
)

// Default timeouts. Create: two SSH connections (20 s), the link up (45 s), two probes.
const (
	defaultTimeout     = 2 * time.Minute
	defaultReadTimeout = time.Minute
)

// Resource implements moai_kv_link.
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
	resp.TypeName = req.ProviderTypeName + "_kv_link"
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

// subject points errors at the node at which they happened.
func subject(doing string, s spec, err error) diagnose.Subject {
	sub := diagnose.Subject{Doing: doing, At: path.Root("nodes")}
	var where *nodeError
	if errors.As(err, &where) {
		sub.Node = path.Root("nodes").AtListIndex(where.index)
		sub.At = sub.Node
		sub.Coordinates = s.nodes[where.index].Coordinates
	}
	return sub
}

// Create implements resource.Resource.
func (r *Resource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	timeout, diags := m.Timeouts.Create(ctx, defaultTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(r.apply(ctx, timeout, &m, func(partial model) {
		resp.Diagnostics.Append(resp.State.Set(ctx, partial)...)
	})...)
	if !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
	}
}

// Update implements resource.Resource.
func (r *Resource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	timeout, diags := m.Timeouts.Update(ctx, defaultTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(r.apply(ctx, timeout, &m, func(model) {})...)
	if !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
	}
}

// apply makes both ends what m says. claimed gets the state to save before the first change.
func (r *Resource) apply(ctx context.Context, timeout time.Duration, m *model, claimed func(model)) diag.Diagnostics {
	ctx, cancel := context.WithTimeout(r.fleet.Context(ctx), timeout)
	defer cancel()
	var diags diag.Diagnostics
	s, ok := m.spec()
	if !ok {
		diags.Append(diagnose.AtError(path.Root("nodes"), "A link needs two nodes", "The nodes are not known. This is a bug in the provider."))
		return diags
	}
	if m.Name.IsUnknown() {
		s.name = defaultName(s.nodes[0].Name, s.nodes[1].Name)
		m.Name = types.StringValue(s.name)
	}
	m.ID = m.Name
	if missing := s.keyless(); len(missing) > 0 {
		diags.Append(diagnose.AtError(path.Root("nodes"), "Node has no key yet", fmt.Sprintf(
			"The daemon of %s has not told its public key, so nobody can trust it. Apply the node first.", strings.Join(missing, " and of "))))
		return diags
	}
	partial := *m
	partial.Verified, partial.Ends = types.BoolValue(false), types.MapNull(types.StringType)
	partial.settle()
	err := newConverger(r.fleet, s).converge(ctx, func() { claimed(partial) })
	if err != nil {
		diags.Append(diagnose.Error(subject("connect the nodes", s, err), err))
		return diags
	}
	m.Verified = types.BoolValue(true)
	m.setEnds(s.healthyEnds())
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
	s, ok := m.spec()
	if !ok {
		return
	}
	err := newConverger(r.fleet, s).remove(ctx, func(node, text string) {
		resp.Diagnostics.Append(diagnose.Notice(subject("remove the link", s, nil), "Another machine answers", fmt.Sprintf("%s. The end of link %s at node %s was left alone.", text, s.name, node)))
	})
	if err != nil {
		resp.Diagnostics.Append(diagnose.NotRemoved(subject("remove the link", s, err), "The link", err))
	}
}

// importFormat is shown in documentation and errors.
const importFormat = "[<link name>;]<node>;<node>, each node as " + fleet.CoordinatesFormat

// ImportState implements resource.ResourceWithImportState.
func (r *Resource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	s, err := parseImportID(req.ID)
	if err != nil {
		resp.Diagnostics.AddError("Invalid import id", fmt.Sprintf("%s.\n\nThe id has the form %s", err, importFormat))
		return
	}
	nodes := types.ListValueMust(noderef.Type(), []attr.Value{noderef.Encode(s.nodes[0]), noderef.Encode(s.nodes[1])})
	for name, v := range map[string]any{
		"id": s.name, "name": s.name, "nodes": nodes, "transport": transportAuto, "encryption": string(api.EncryptionAEAD), "streams": int64(defaultStreams),
	} {
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root(name), v)...)
	}
}

// parseImportID reads an import id.
func parseImportID(id string) (spec, error) {
	parts := strings.Split(id, ";")
	var s spec
	if len(parts) == 3 {
		s.name = strings.TrimSpace(parts[0])
		if !fleet.ValidName(s.name) || len(s.name) > maxName {
			return spec{}, fmt.Errorf("link name %q %s", s.name, fleet.NameRule)
		}
		parts = parts[1:]
	}
	if len(parts) != 2 {
		return spec{}, errors.New("two nodes are needed, apart by a semicolon")
	}
	for i, p := range parts {
		c, err := fleet.ParseCoordinates(p)
		if err != nil {
			return spec{}, fmt.Errorf("node %d: %w", i+1, err)
		}
		s.nodes[i] = noderef.Ref{Coordinates: c}
	}
	if s.nodes[0].Name == s.nodes[1].Name {
		return spec{}, fmt.Errorf("both nodes are %q", s.nodes[0].Name)
	}
	if s.name == "" {
		s.name = defaultName(s.nodes[0].Name, s.nodes[1].Name)
	}
	return s, nil
}
