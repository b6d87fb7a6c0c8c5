package engine

import (
	"context"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/instance"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
	"github.com/moai-dev/terraform-provider-moai/internal/service"
)

// ValidateConfig implements resource.ResourceWithValidateConfig. It needs no
// provider configuration and tolerates unknown values.
func (r *Resource) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var m model
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() || m.Kind.IsUnknown() {
		return
	}
	if _, err := engines.Lookup(m.Kind.ValueString()); err != nil {
		resp.Diagnostics.Append(diagnose.AtError(path.Root("kind"), "Unknown kind of engine", upper(err.Error())+"."))
	}
}

// ModifyPlan implements resource.ResourceWithModifyPlan. It dials nothing, unless the refresh has found somebody else's
// unit in the engine's place.
func (r *Resource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() || r.fleet == nil {
		return
	}
	ctx = r.fleet.Context(ctx)
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
	if err := instance.Hold(ctx, r.fleet, resp.Private, plan.holds()); err != nil {
		resp.Diagnostics.Append(diagnose.Error(subject("plan the engine", noderef.Decode(plan.Node).Coordinates), err))
		return
	}
	resp.Diagnostics.Append(r.plan(ctx, state, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, plan)...)
}

// plan fills in what is known before apply. state is nil at create.
func (r *Resource) plan(ctx context.Context, state *model, plan *model) diag.Diagnostics {
	var diags diag.Diagnostics
	node := noderef.Decode(plan.Node)
	plan.Installed = installedObject(healthy)
	plan.Ready = types.BoolUnknown()
	plan.ID = types.StringUnknown()
	if node.Name != "" && !plan.Name.IsUnknown() {
		plan.ID = types.StringValue(node.Name + "/" + plan.Name.ValueString())
	}
	if !plan.specKnown(ctx) {
		plan.Unit, plan.EffectiveArgs = types.StringUnknown(), types.ListUnknown(types.StringType)
		plan.KVFingerprint, plan.KVBytesPerToken = types.StringUnknown(), types.Int64Unknown()
		return diags
	}
	k, s, ds := checkedSpec(*plan)
	diags.Append(ds...)
	if diags.HasError() {
		return diags
	}
	d, err := desire(r.fleet.Name(), k, s, node.Coordinates)
	if err != nil {
		diags.Append(diagnose.Refusal(subject("plan the engine", node.Coordinates), "Engine cannot be planned", err.Error()+"."))
		return diags
	}
	if node.Name != "" {
		if diags.Append(r.room(s, node.Coordinates).refusals()...); diags.HasError() {
			return diags
		}
	}
	if state != nil && state.ID.Equal(plan.ID) && text(state.Installed, "unit") == service.Foreign {
		if diags.Append(r.refuseForeign(ctx, d, node.Coordinates)...); diags.HasError() {
			return diags
		}
	}
	plan.setPlanned(d)
	if node.Name == "" {
		plan.EffectiveArgs = types.ListUnknown(types.StringType)
	}
	// Whatever restarts the engine makes it unready for a while, and whatever was left unfinished is finished.
	if state != nil && state.Ready.ValueBool() && state.Installed.Equal(plan.Installed) && state.EffectiveArgs.Equal(plan.EffectiveArgs) &&
		state.KVFingerprint.Equal(plan.KVFingerprint) && state.Runtime.Equal(plan.Runtime) && state.Env.Equal(plan.Env) && sameStaging(*state, *plan) && state.ID.Equal(plan.ID) {
		plan.Ready = types.BoolValue(true)
	}
	return diags
}

// refuseForeign refuses to plan over what the refresh found to be somebody else's. It asks the host whose it is.
func (r *Resource) refuseForeign(ctx context.Context, d desired, c fleet.Coordinates) diag.Diagnostics {
	n := r.fleet.Node(c)
	i, err := openInstaller(ctx, r.fleet, n)
	if err == nil {
		err = d.service.Refuse(ctx, i.host)
	}
	if err == nil {
		return nil
	}
	return diag.Diagnostics{diagnose.Error(subject("plan the engine", n.Coordinates()), err)}
}

// sameStaging compares amounts: another spelling restarts nothing.
func sameStaging(a, b model) bool {
	x, errX := size(a.Staging, "memory")
	y, errY := size(b.Staging, "memory")
	return errX == nil && errY == nil && x == y
}

// checkedSpec reads a known model and reports what its kind cannot do, at the
// attributes.
func checkedSpec(m model) (engines.Kind, engines.Spec, diag.Diagnostics) {
	var diags diag.Diagnostics
	k, err := engines.Lookup(m.Kind.ValueString())
	if err != nil {
		diags.Append(diagnose.AtError(path.Root("kind"), "Unknown kind of engine", upper(err.Error())+"."))
		return nil, engines.Spec{}, diags
	}
	s, err := m.spec(k)
	if err != nil {
		diags.AddError("Engine cannot be planned", err.Error()+".")
		return nil, engines.Spec{}, diags
	}
	for _, p := range k.Check(s) {
		diags.Append(diagnose.AtError(attributePath(p.Attribute), p.Summary, p.Detail))
	}
	return k, s, diags
}

// attributePath turns a dotted name such as "extra_args.1" or "env.NAME" into a path.
func attributePath(name string) path.Path {
	if variable, ok := strings.CutPrefix(name, "env."); ok {
		return path.Root("env").AtMapKey(variable)
	}
	at := path.Empty()
	for step := range strings.SplitSeq(name, ".") {
		if n, err := strconv.Atoi(step); err == nil {
			at = at.AtListIndex(n)
			continue
		}
		at = at.AtName(step)
	}
	return at
}

// upper makes a sentence of an error.
func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
