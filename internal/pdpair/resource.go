package pdpair

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
)

// Default timeouts. Create: engines that are not ready (20 s each), canaries (a few seconds each). Delete: one question
// a node.
const (
	defaultTimeout       = 5 * time.Minute
	defaultDeleteTimeout = 2 * time.Minute
	defaultReadTimeout   = time.Minute
)

// Resource implements moai_pd_pair.
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
	resp.TypeName = req.ProviderTypeName + "_pd_pair"
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

// subjectOf says where an error belongs.
func subjectOf(doing string, err error) diagnose.Subject {
	s := diagnose.Subject{Doing: doing}
	var p *placedError
	if errors.As(err, &p) {
		s.Coordinates, s.Node, s.At = p.coord, p.at, p.at
	}
	return s
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
	saved := func(m model) { resp.Diagnostics.Append(resp.State.Set(ctx, m)...) }
	resp.Diagnostics.Append(r.apply(ctx, "make the pair", &m, nil, saved)...)
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
	var former []engineref.Ref
	if p, ok := old.pools(); ok {
		former = p.nodes()
	}
	saved := func(m model) { resp.Diagnostics.Append(resp.State.Set(ctx, m)...) }
	resp.Diagnostics.Append(r.apply(ctx, "update the pair", &m, former, saved)...)
}

// apply registers the pair and verifies it. save writes the state: first when only
// the beginning exists, then when all is done.
func (r *Resource) apply(ctx context.Context, doing string, m *model, former []engineref.Ref, save func(model)) diag.Diagnostics {
	var diags diag.Diagnostics
	p, ok := m.pools()
	if !ok {
		diags.AddError("Pair is not known", "The engines of the pair are not known at apply. This is a bug in the provider.")
		return diags
	}
	for _, f := range p.faults() {
		diags.Append(diagnose.AtError(f.path(), f.summary, f.detail))
	}
	if diags.HasError() {
		return diags
	}
	if m.Name.IsUnknown() || m.Name.IsNull() {
		m.Name = types.StringValue(p.defaultName())
	}
	m.ID, m.Model = m.Name, types.StringValue(p.model())
	cs, ok := p.crossings()
	if !ok {
		diags.AddError("Pair is not known", "The engines or options of the pair are not known at apply. This is a bug in the provider.")
		return diags
	}
	m.Conversions = conversions(cs)
	planned := m.Verified
	m.Verified, m.Ends = types.BoolValue(false), p.healthyEnds()
	m.settle()
	c := &converger{fleet: r.fleet, name: m.Name.ValueString(), pools: p}
	if err := c.register(ctx, former, func() { save(*m) }); err != nil {
		diags.Append(diagnose.Error(subjectOf(doing, err), err))
		return diags
	}
	if planned.ValueBool() && !planned.IsUnknown() {
		m.Verified = planned
		save(*m)
		return diags
	}
	f, err := c.verify(ctx, cs)
	if err != nil {
		save(*m)
		diags.Append(diagnose.Error(subjectOf("verify the pair", err), err))
		return diags
	}
	m.Verified = types.BoolValue(len(f.wrong) == 0 && len(f.open) == 0)
	save(*m)
	switch {
	case len(f.wrong) > 0:
		diags.Append(diagnose.AtError(path.Root("decode"), "Pair gives wrong answers", fmt.Sprintf(
			"A canary showed that these engines must not serve together. Look at the logs of both engines and of moai-kvd.service on their nodes.\n\n%s",
			strings.Join(append(f.wrong, f.open...), "\n"))))
	case len(f.open) > 0:
		diags.Append(diagnose.AtWarning(path.Root("decode"), "Pair is not verified yet", fmt.Sprintf(
			"The pair is in place, but not every canary could show that it works. Nothing has to be undone: apply again, and it is verified then.\n\n%s",
			strings.Join(f.open, "\n"))))
	}
	if len(f.notes) > 0 {
		diags.Append(diagnose.AtWarning(path.Root("allow_lossy"), "KV lost values on its way", fmt.Sprintf(
			"KV crossed and was used. Since the conversion changes values, answers were not required to be equal:\n\n%s", strings.Join(f.notes, "\n"))))
	}
	return diags
}

// Read implements resource.Resource. It drops the state only on proof: every node's
// daemon answers, and none knows the pair.
func (r *Resource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	ctx = r.fleet.Context(ctx)
	var m model
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	timeout, diags := m.Timeouts.Read(ctx, defaultReadTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() || m.Prefill.IsNull() {
		// An imported pair has only a name: the daemons hold names, not where nodes are.
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	m.Prefill, m.Decode = engineref.FollowList(ctx, r.fleet, m.Prefill), engineref.FollowList(ctx, r.fleet, m.Decode)
	p, ok := m.pools()
	if !ok {
		return
	}
	c := &converger{fleet: r.fleet, name: m.Name.ValueString(), pools: p}
	words, silent := c.read(ctx)
	gone := len(words) > 0
	for node, w := range words {
		gone = gone && w == stMissing
		if w == "" {
			// Of a machine that cannot be reached nothing new is known.
			words[node] = stSilent
			if old, ok := m.Ends.Elements()[node].(types.String); ok {
				words[node] = old.ValueString()
			}
		}
	}
	for _, err := range silent {
		resp.Diagnostics.Append(diagnose.Warning(subjectOf("read the pair", err), err, "The last known state is kept: a pair on a machine that cannot be reached is not gone."))
	}
	if gone {
		resp.State.RemoveResource(ctx)
		return
	}
	m.Ends = ends(words)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// Delete implements resource.Resource.
func (r *Resource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	ctx = r.fleet.Context(ctx)
	var m model
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	timeout, diags := m.Timeouts.Delete(ctx, defaultDeleteTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p, ok := m.pools()
	if !ok || m.Prefill.IsNull() {
		resp.Diagnostics.Append(diagnose.Notice(diagnose.Subject{At: path.Root("name")}, "Pair was not removed from its nodes",
			"An imported pair that was never applied does not know its nodes. Apply it once, or remove it on each node's daemon: DELETE /v1/pairs/"+m.Name.ValueString()+"."))
		return
	}
	c := &converger{fleet: r.fleet, name: m.Name.ValueString(), pools: p}
	for _, err := range c.remove(ctx, func(s string) {
		resp.Diagnostics.Append(diagnose.Notice(subjectOf("remove the pair", nil), "Pair was not removed everywhere", s))
	}) {
		resp.Diagnostics.Append(diagnose.NotRemoved(subjectOf("remove the pair", err), "The pair", err))
	}
}

// ImportState implements resource.ResourceWithImportState. The next apply registers
// the pair again, which changes nothing where it is, and verifies it.
func (r *Resource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	if !fleet.ValidName(req.ID) {
		resp.Diagnostics.AddError("Invalid import id", fmt.Sprintf("The id is the pair's name; %q is none: it %s.", req.ID, fleet.NameRule))
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), req.ID)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), req.ID)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("verified"), false)...)
}
