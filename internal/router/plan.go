package router

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
	"github.com/moai-dev/terraform-provider-moai/internal/facts"
	"github.com/moai-dev/terraform-provider-moai/internal/instance"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
	"github.com/moai-dev/terraform-provider-moai/internal/service"
)

// ModifyPlan implements resource.ResourceWithModifyPlan. It dials nothing, unless the refresh has found somebody else's
// unit in the router's place.
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
	if r.fleet != nil {
		if err := instance.Hold(ctx, r.fleet, resp.Private, plan.holds()); err != nil {
			resp.Diagnostics.Append(diagnostic("plan the router", noderef.Decode(plan.Node).Coordinates, err))
			return
		}
		resp.Diagnostics.Append(r.refusals(r.fleet.Context(ctx), state, plan)...)
	}
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

// refusals is what would fail at apply and can be known before.
func (r *Resource) refusals(ctx context.Context, state *model, plan model) diag.Diagnostics {
	var diags diag.Diagnostics
	s, _ := plan.spec()
	if !s.node.CoordinatesKnown {
		return diags
	}
	n := r.fleet.Node(s.node.Coordinates)
	if state != nil && state.ID.Equal(plan.ID) && state.unitForeign() {
		i, err := openInstaller(ctx, r.fleet, n)
		if err == nil {
			err = s.removable(r.fleet.Name()).service.Refuse(ctx, i.host)
		}
		if err != nil {
			return append(diags, diagnostic("plan the router", n.Coordinates(), err))
		}
	}
	if !plan.Listen.IsUnknown() && (state == nil || !state.Listen.Equal(plan.Listen) || !state.ID.Equal(plan.ID)) {
		f, known := n.KnownFacts()
		switch has, certain := reachable(s.listen, f.NICs); {
		case has:
		case known && certain:
			diags.Append(diagnose.AtError(path.Root("listen"), "Node has no such address", fmt.Sprintf(
				"The machine of node %s has no address %s, so that the router could not listen on it. It has %s; 0.0.0.0 stands for all.", s.node.Name, s.listen, addresses(f.NICs))))
		default:
			diags.Append(diagnose.AtWarning(path.Root("listen"), "Address could not be checked", fmt.Sprintf(
				"It is not known yet whether the machine of node %s has the address %s. If it has not, the router will not start.", s.node.Name, s.listen)))
		}
	}
	return diags
}

func (m model) unitForeign() bool {
	w, ok := m.Installed.Attributes()["unit"].(types.String)
	return ok && w.ValueString() == service.Foreign
}

// reachable reports whether a machine with these NICs can listen on an address:port. It is not certain of link-local
// addresses, which are not among the facts.
func reachable(listen string, nics []facts.NIC) (has, certain bool) {
	h, _, err := net.SplitHostPort(listen)
	ip := net.ParseIP(h)
	switch {
	case err != nil, ip == nil, ip.IsUnspecified(), ip.IsLoopback():
		return true, true // what is no address is refused elsewhere
	case ip.IsLinkLocalUnicast():
		return false, false
	}
	for _, n := range nics {
		for _, a := range n.Addresses {
			if have, _, err := net.ParseCIDR(a); err == nil && have.Equal(ip) {
				return true, true
			}
		}
	}
	return false, true
}

// addresses lists what a machine can listen on.
func addresses(nics []facts.NIC) string {
	var out []string
	for _, n := range nics {
		for _, a := range n.Addresses {
			h, _, _ := strings.Cut(a, "/")
			out = append(out, h)
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
