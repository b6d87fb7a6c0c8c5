package node_test

import (
	"context"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/moai-dev/terraform-provider-moai/internal/acctest"
)

// Ctrl-C cancels the request's context. What is on the machine by then has to be in the state, and the lock free.
func TestNodeInterruptedCreateSavesState(t *testing.T) {
	f, h := h100(t)
	server, err := f.Factories()["moai"]()
	if err != nil {
		t.Fatal(err)
	}
	background := context.Background()
	schema, err := server.GetProviderSchema(background, &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	configure(t, server, schema.Provider.ValueType(), h)
	typ := schema.ResourceSchemas["moai_node"].ValueType()
	config := object(t, typ, map[string]any{
		"name": "h100-0", "plan_probe": "auto",
		"ssh": map[string]any{"host": h.Server.Host(), "port": h.Server.Port(), "profile": "h100-0", "host_key": h.Server.HostKey()},
	})
	null := dynamic(t, typ, tftypes.NewValue(typ, nil))
	// What core proposes: computed values are unknown.
	proposed, err := tftypes.Transform(config, func(p *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
		if len(p.Steps()) == 1 && v.IsNull() {
			if name, ok := p.LastStep().(tftypes.AttributeName); ok && name != "fabric" && name != "expect" && name != "timeouts" {
				return tftypes.NewValue(v.Type(), tftypes.UnknownValue), nil
			}
		}
		return v, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := server.PlanResourceChange(background, &tfprotov6.PlanResourceChangeRequest{
		TypeName: "moai_node", PriorState: null, ProposedNewState: dynamic(t, typ, proposed), Config: dynamic(t, typ, config),
	})
	fail(t, err, plan.Diagnostics)

	ctx, cancel := context.WithCancel(background)
	defer cancel()
	start := h.OnUnit
	h.OnUnit = func(event, unit string) error { // somebody presses Ctrl-C while the daemon starts
		cancel()
		return start(event, unit)
	}
	resp, err := server.ApplyResourceChange(ctx, &tfprotov6.ApplyResourceChangeRequest{
		TypeName: "moai_node", PriorState: null, PlannedState: plan.PlannedState, Config: dynamic(t, typ, config),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Diagnostics) == 0 {
		t.Error("an interrupted create succeeded")
	}
	state, err := resp.NewState.Unmarshal(typ)
	if err != nil {
		t.Fatal(err)
	}
	if state.IsNull() || !state.IsFullyKnown() {
		t.Errorf("state is null %v, fully known %v: %s", state.IsNull(), state.IsFullyKnown(), state)
	}
	if _, ok := h.File("/etc/moai/owner.json"); !ok {
		t.Error("what is on the machine has no owner")
	}
	if owner := h.LockOwner(); owner != "" {
		t.Errorf("the machine is still locked by %q", owner)
	}
}

func fail(t *testing.T, err error, diags []*tfprotov6.Diagnostic) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range diags {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			t.Fatalf("%s: %s", d.Summary, d.Detail)
		}
	}
}

func configure(t *testing.T, server tfprotov6.ProviderServer, typ tftypes.Type, h *acctest.Host) {
	t.Helper()
	resp, err := server.ConfigureProvider(context.Background(), &tfprotov6.ConfigureProviderRequest{Config: dynamic(t, typ, object(t, typ, map[string]any{
		"fleet": "test", "ssh_profiles": map[string]any{"h100-0": map[string]any{"user": "root", "private_key": h.Server.ClientKey().Reveal()}},
	}))})
	fail(t, err, resp.Diagnostics)
}

func dynamic(t *testing.T, typ tftypes.Type, v tftypes.Value) *tfprotov6.DynamicValue {
	t.Helper()
	d, err := tfprotov6.NewDynamicValue(typ, v)
	if err != nil {
		t.Fatal(err)
	}
	return &d
}

// object makes a value of a type; what is not given is null.
func object(t *testing.T, typ tftypes.Type, given any) tftypes.Value {
	t.Helper()
	values, isMap := given.(map[string]any)
	if !isMap {
		return tftypes.NewValue(typ, given)
	}
	out := map[string]tftypes.Value{}
	switch typ := typ.(type) {
	case tftypes.Object:
		for name, at := range typ.AttributeTypes {
			if v, ok := values[name]; ok {
				out[name] = object(t, at, v)
			} else {
				out[name] = tftypes.NewValue(at, nil)
			}
		}
	case tftypes.Map:
		for name, v := range values {
			out[name] = object(t, typ.ElementType, v)
		}
	default:
		t.Fatalf("no object: %s", typ)
	}
	return tftypes.NewValue(typ, out)
}
