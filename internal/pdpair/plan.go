package pdpair

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
	"github.com/moai-dev/terraform-provider-moai/internal/instance"
)

// ModifyPlan implements resource.ResourceWithModifyPlan. It dials nothing: what
// engines will be is known from their plan.
func (r *Resource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		return
	}
	var plan model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	var state *model
	if !req.State.Raw.IsNull() {
		state = new(model)
		resp.Diagnostics.Append(req.State.Get(ctx, state)...)
		if resp.Diagnostics.HasError() {
			return
		}
	}
	resp.Diagnostics.Append(plan.plan(state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if r.fleet != nil {
		if err := instance.Hold(ctx, r.fleet, resp.Private, plan.holds()); err != nil {
			resp.Diagnostics.Append(diagnose.Error(subjectOf("plan the pair", err), err))
			return
		}
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, plan)...)
}

// plan checks the pools and fills in what is known before apply. state is nil at
// create.
func (m *model) plan(state *model) diag.Diagnostics {
	var diags diag.Diagnostics
	m.Verified, m.Ends, m.Model = types.BoolUnknown(), types.MapUnknown(types.StringType), types.StringUnknown()
	m.Conversions = types.ListUnknown(conversionType)
	p, ok := m.pools()
	if !ok {
		m.ID = m.Name
		return diags
	}
	for _, f := range p.faults() {
		diags.Append(diagnose.AtError(f.path(), f.summary, f.detail))
	}
	if diags.HasError() {
		return diags
	}
	if m.Name.IsUnknown() && p.known() {
		m.Name = types.StringValue(p.defaultName())
	}
	m.ID = m.Name
	if model := p.model(); model != "" {
		m.Model = types.StringValue(model)
	}
	if p.known() {
		m.Ends = p.healthyEnds()
	}
	if cs, ok := p.crossings(); ok {
		m.Conversions = conversions(cs)
		if text := lossText(cs); text != "" {
			diags.Append(diagnose.AtWarning(path.Root("allow_lossy"), "KV loses values on its way", text))
		}
	}
	if state != nil && p.known() && m.settled(*state, p) {
		m.Verified = types.BoolValue(true)
	}
	return diags
}

// settled reports whether the last apply verified exactly this pair. Where nodes
// are reached does not matter to that.
func (m *model) settled(state model, p pools) bool {
	s, ok := state.pools()
	if !ok || !state.Verified.ValueBool() || !state.Ends.Equal(m.Ends) || !state.Name.Equal(m.Name) || !state.Conversions.Equal(m.Conversions) || s.options != p.options {
		return false
	}
	if len(s.prefill) != len(p.prefill) || len(s.decode) != len(p.decode) {
		return false
	}
	old := s.all()
	for i, e := range p.all() {
		o := old[i]
		if o.ID() != e.ID() || o.Fingerprint != e.Fingerprint || o.Model != e.Model || o.Kind != e.Kind || o.Node.MachineID != e.Node.MachineID {
			return false
		}
	}
	return true
}
