package router

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// ModifyPlan implements resource.ResourceWithModifyPlan. It dials nothing.
func (r *Resource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		return
	}
	var plan model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	var state *model
	if !req.State.Raw.IsNull() {
		state = new(model)
		resp.Diagnostics.Append(req.State.Get(ctx, state)...)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	plan.plan(state)
	resp.Diagnostics.Append(resp.Plan.Set(ctx, plan)...)
}

// plan fills in what is known before apply. state is nil at create.
func (m *model) plan(state *model) {
	m.Installed = installedObject(healthy)
	m.Ready = types.BoolValue(true)
	m.Trust, m.ID, m.Endpoint = types.MapUnknown(types.StringType), types.StringUnknown(), types.StringUnknown()
	m.PublicKey = types.StringUnknown()
	if state != nil && !state.keyLost() {
		m.PublicKey = state.PublicKey
	}
	s, ok := m.spec()
	if s.node.Name != "" && !m.Name.IsUnknown() {
		m.ID = types.StringValue(s.node.Name + "/" + s.name)
	}
	if s.node.CoordinatesKnown && !m.Listen.IsUnknown() {
		if url, err := endpoint(s.listen, s.node.Coordinates); err == nil && url != "" {
			m.Endpoint = types.StringValue(url)
		}
	}
	if ok {
		m.Trust = s.healthyTrust()
	}
}
