package node

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
	"github.com/moai-dev/terraform-provider-moai/internal/instance"
	"github.com/moai-dev/terraform-provider-moai/internal/payload"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

// planProbeLimit bounds what the plan waits for a machine.
const planProbeLimit = 10 * time.Second

// ModifyPlan implements resource.ResourceWithModifyPlan.
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
	if err := instance.Hold(ctx, r.fleet, resp.Private, plan.holds()); err != nil {
		resp.Diagnostics.Append(diagnose.Error(subject("plan the node", plan.ref().Coordinates), err))
		return
	}
	r.fleet.ExpectGPUs(plan.Name.ValueString(), plan.expectation().GPUCount)
	if req.State.Raw.IsNull() {
		r.planCreate(ctx, &plan, resp)
	} else {
		var state model
		resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
		if resp.Diagnostics.HasError() {
			return
		}
		r.planUpdate(ctx, state, &plan, resp)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, plan)...)
}

func (r *Resource) planCreate(ctx context.Context, plan *model, resp *resource.ModifyPlanResponse) {
	plan.ID = plan.Name
	plan.setStatus(healthy)
	plan.Ready = types.BoolValue(true)
	// Only what the configuration states is planned: apply plans again in a new process, and must come to the same.
	if e := plan.expectation(); e.Vendor != "" {
		plan.Vendor = types.StringValue(e.Vendor)
	}
	if _, err := r.payload.For("amd64"); errors.Is(err, payload.ErrMissing) {
		resp.Diagnostics.AddError("No moaid to install", err.Error()+".")
		return
	}
	ref := plan.ref()
	if !ref.CoordinatesKnown {
		return
	}
	n := r.fleet.Register(ref.Coordinates)
	if plan.PlanProbe.ValueString() == probeNever {
		return
	}
	r.probe(ctx, n, *plan, resp)
}

// probe looks at a machine before anything is on it. It only reads.
func (r *Resource) probe(ctx context.Context, n *fleet.Node, plan model, resp *resource.ModifyPlanResponse) {
	asked, cancel := context.WithTimeout(ctx, planProbeLimit)
	defer cancel()
	f, err := n.Facts(asked)
	if err == nil {
		var h *installer
		if h, err = openInstaller(asked, r.fleet, n, r.payload); err == nil {
			h.fresh = true
			err = h.claim(asked)
		}
	}
	if err == nil {
		c := n.Coordinates()
		c.MachineID = f.MachineID
		err = r.fleet.Plan(c)
	}
	var foreign *foreignError
	switch {
	case errors.Is(err, fleet.ErrNotKnownYet):
		return
	case errors.As(err, &foreign) && foreign.marker.Fleet == r.fleet.Name() && r.fleet.Leaves(f.MachineID, foreign.marker.Resource):
	case err != nil:
		resp.Diagnostics.Append(diagnose.Error(subject("look at the machine", n.Coordinates()), err))
		return
	}
	resp.Diagnostics.Append(refusals(plan.expectation(), f, n.Coordinates())...)
	if _, err := r.payload.For(f.Arch); err != nil && unsupported(f) == "" {
		resp.Diagnostics.Append(diagnose.Refusal(subject("look at the machine", n.Coordinates()), "No moaid to install", err.Error()+"."))
	}
	if plan.Expect.IsNull() && !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(diagnose.AtWarning(path.Root("name"), "Node without expectation", fmt.Sprintf(
			"The machine %s has %s. Say so in the configuration, so that another machine at this address is refused:\n\n  %s",
			n.Coordinates().Name, describe(f), suggestion(f))))
	}
	if text := findings(f); text != "" {
		resp.Diagnostics.Append(diagnose.AtWarning(path.Root("ssh"), "Machine needs attention",
			fmt.Sprintf("The machine %s can be used, but:\n\n%s", n.Coordinates().Name, text)))
	}
}

func (r *Resource) planUpdate(ctx context.Context, state model, plan *model, resp *resource.ModifyPlanResponse) {
	plan.ID = plan.Name
	plan.setStatus(healthy)
	plan.Ready = types.BoolValue(true)
	r.planVersion(state, plan, resp)
	plan.PublicKey = state.PublicKey
	if state.keyMissing() {
		plan.PublicKey = types.StringUnknown()
	}
	if state.MachineID.IsNull() {
		plan.factsUnknown()
	}
	ref, old := plan.ref(), state.ref()
	if !ref.CoordinatesKnown {
		return
	}
	ref.MachineID = old.MachineID
	if ref.Name != old.Name {
		r.fleet.Leave(old.MachineID, resourceName(old.Name))
	}
	n := r.fleet.Register(ref.Coordinates)
	if ref.Name == old.Name && state.markerForeign() {
		if r.refuseForeign(ctx, n, resp); resp.Diagnostics.HasError() {
			return
		}
	}
	moved := !ref.SameSSH(old.Coordinates)
	if moved && plan.PlanProbe.ValueString() == probeNever {
		return
	}
	r.verify(ctx, n, moved, plan, resp)
	if resp.Diagnostics.HasError() || ref.Name != old.Name {
		return
	}
	if f, ok := n.KnownFacts(); ok {
		r.warnOfMismatch(state, *plan, f.MachineID == old.MachineID, refusals(plan.expectation(), f, n.Coordinates()), resp)
	}
}

// refuseForeign refuses to plan over a machine that the refresh found to be somebody else's. It asks the machine whose.
func (r *Resource) refuseForeign(ctx context.Context, n *fleet.Node, resp *resource.ModifyPlanResponse) {
	asked, cancel := context.WithTimeout(ctx, planProbeLimit)
	defer cancel()
	i, err := openInstaller(asked, r.fleet, n, r.payload)
	if err == nil {
		err = i.claim(asked)
	}
	if errors.As(err, new(*foreignError)) {
		resp.Diagnostics.Append(diagnose.Error(subject("plan the node", n.Coordinates()), err))
	}
}

// planVersion plans the moaid that this provider carries.
func (r *Resource) planVersion(state model, plan *model, resp *resource.ModifyPlanResponse) {
	plan.MoaidVersion = state.MoaidVersion
	if state.Arch.IsNull() {
		plan.MoaidVersion = types.StringUnknown()
		return
	}
	bin, err := r.payload.For(state.Arch.ValueString())
	if err != nil {
		resp.Diagnostics.AddWarning("No moaid to install", err.Error()+". What is installed is left as it is.")
		return
	}
	plan.MoaidVersion = types.StringValue(bin.Version())
}

// verify makes sure that the machine at the planned coordinates is the node's. Where the refresh has already asked,
// nothing is sent.
func (r *Resource) verify(ctx context.Context, n *fleet.Node, moved bool, plan *model, resp *resource.ModifyPlanResponse) {
	err := n.Failure()
	if err == nil {
		asked, cancel := context.WithTimeout(ctx, planProbeLimit)
		defer cancel()
		err = n.Verify(asked)
	}
	var other *fleet.IdentityError
	switch {
	case err == nil, errors.Is(err, fleet.ErrNotKnownYet):
	case errors.As(err, &other):
		plan.factsUnknown()
		plan.PublicKey, plan.MoaidVersion = types.StringUnknown(), types.StringUnknown()
		if e := plan.expectation(); e.Vendor != "" {
			plan.Vendor = types.StringValue(e.Vendor)
		}
		resp.RequiresReplace = append(resp.RequiresReplace, path.Root("machine_id"))
		resp.Diagnostics.Append(diagnose.Warning(subject("recognise the machine", n.Coordinates()), err,
			"Another machine is another node, so it is planned for replacement. If that is not meant, correct ssh.host and do not apply."))
	case moved, errors.Is(err, ssh.ErrHostKey), errors.Is(err, ssh.ErrAuth), errors.Is(err, ssh.ErrConfig), errors.As(err, new(*fleet.ProfileError)):
		resp.Diagnostics.Append(diagnose.Error(subject("reach the machine", n.Coordinates()), err))
	}
	// Otherwise the refresh has warned; a plan for the rest of the fleet goes on.
}

// warnOfMismatch reports a machine that is no longer what is expected. An expectation that is new is a reason to refuse;
// an accelerator that was lost is a reason to tell, and not to stop every other change.
func (r *Resource) warnOfMismatch(state, plan model, same bool, found diag.Diagnostics, resp *resource.ModifyPlanResponse) {
	if !same {
		return
	}
	for _, d := range found {
		if state.Expect.Equal(plan.Expect) {
			if at, ok := d.(diag.DiagnosticWithPath); ok {
				resp.Diagnostics.Append(diagnose.AtWarning(at.Path(), d.Summary(), d.Detail()))
			}
			continue
		}
		resp.Diagnostics.Append(d)
	}
}
