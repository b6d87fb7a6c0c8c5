package kvlink

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
	"github.com/moai-dev/terraform-provider-moai/internal/instance"
)

// ModifyPlan implements resource.ResourceWithModifyPlan.
func (r *Resource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		return
	}
	var plan model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	// Always asked for, so that what somebody changed by hand is a change in the plan.
	plan.Verified = types.BoolValue(true)
	plan.Ends = types.MapUnknown(types.StringType)
	s, ok := plan.spec()
	if ok && s.nodes[0].Name != "" && s.nodes[1].Name != "" {
		if s.nodes[0].Name == s.nodes[1].Name {
			resp.Diagnostics.Append(diagnose.AtError(path.Root("nodes"), "A link needs two nodes",
				fmt.Sprintf("Both nodes are %q. Engines of one node need no link.", s.nodes[0].Name)))
			return
		}
		if plan.Name.IsUnknown() {
			plan.Name = types.StringValue(defaultName(s.nodes[0].Name, s.nodes[1].Name))
		}
		plan.setEnds(s.healthyEnds())
	}
	plan.ID = plan.Name
	if r.fleet != nil {
		if err := instance.Hold(ctx, r.fleet, resp.Private, plan.holds()); err != nil {
			resp.Diagnostics.Append(diagnose.Error(subject("plan the link", s, err), err))
			return
		}
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, plan)...)
}
