package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/moai-dev/terraform-provider-moai/internal/acctest"
	"github.com/moai-dev/terraform-provider-moai/internal/payload"
)

// run is one run of a CLI over one moai_node, on the protocol: a process each, and much faster than the real one.
type run struct {
	t      *testing.T
	server tfprotov6.ProviderServer
	typ    tftypes.Type
	config tftypes.Value
}

func newRun(t *testing.T, f *acctest.Fleet, h *acctest.Host, p *payload.Source) run {
	t.Helper()
	factories := f.Factories()
	if p != nil {
		factories = f.FactoriesWith(p)
	}
	server, err := factories["moai"]()
	if err != nil {
		t.Fatal(err)
	}
	schema, err := server.GetProviderSchema(context.Background(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	configure(t, server, schema.Provider.ValueType(), h)
	typ := schema.ResourceSchemas["moai_node"].ValueType()
	return run{t: t, server: server, typ: typ, config: object(t, typ, map[string]any{
		"name": "h100-0", "plan_probe": "auto",
		"ssh": map[string]any{"host": h.Server.Host(), "port": h.Server.Port(), "profile": "h100-0", "host_key": h.Server.HostKey()},
	})}
}

func (r run) null() tftypes.Value { return tftypes.NewValue(r.typ, nil) }

// read refreshes a state.
func (r run) read(state tftypes.Value) tftypes.Value {
	r.t.Helper()
	if state.IsNull() {
		return state
	}
	resp, err := r.server.ReadResource(context.Background(), &tfprotov6.ReadResourceRequest{TypeName: "moai_node", CurrentState: dynamic(r.t, r.typ, state)})
	fail(r.t, err, resp.Diagnostics)
	return r.value(resp.NewState)
}

func (r run) value(d *tfprotov6.DynamicValue) tftypes.Value {
	r.t.Helper()
	v, err := d.Unmarshal(r.typ)
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

// plan is what core would plan; the proposal takes what is not configured from the prior state, or leaves it unknown.
func (r run) plan(prior tftypes.Value) tftypes.Value {
	r.t.Helper()
	var old map[string]tftypes.Value
	if !prior.IsNull() {
		if err := prior.As(&old); err != nil {
			r.t.Fatal(err)
		}
	}
	var proposed map[string]tftypes.Value
	if err := r.config.As(&proposed); err != nil {
		r.t.Fatal(err)
	}
	for name, v := range proposed {
		switch {
		case !v.IsNull() || name == "fabric" || name == "expect" || name == "timeouts":
		case old != nil:
			proposed[name] = old[name]
		default:
			proposed[name] = tftypes.NewValue(v.Type(), tftypes.UnknownValue)
		}
	}
	resp, err := r.server.PlanResourceChange(context.Background(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: "moai_node", PriorState: dynamic(r.t, r.typ, prior), ProposedNewState: dynamic(r.t, r.typ, tftypes.NewValue(r.typ, proposed)),
		Config: dynamic(r.t, r.typ, r.config),
	})
	fail(r.t, err, resp.Diagnostics)
	return r.value(resp.PlannedState)
}

// apply goes from prior to planned, where null means that there is nothing. failed says whether there was an error.
func (r run) apply(prior, planned tftypes.Value) (state tftypes.Value, failed bool) {
	r.t.Helper()
	config := r.config
	if planned.IsNull() {
		config = r.null()
	}
	resp, err := r.server.ApplyResourceChange(context.Background(), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: "moai_node", PriorState: dynamic(r.t, r.typ, prior), PlannedState: dynamic(r.t, r.typ, planned), Config: dynamic(r.t, r.typ, config),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, d := range resp.Diagnostics {
		failed = failed || d.Severity == tfprotov6.DiagnosticSeverityError
	}
	return r.value(resp.NewState), failed
}

// settled fails the test unless the node is as it shall be: the next plan is empty and the machine runs the payload.
func settled(t *testing.T, f *acctest.Fleet, h *acctest.Host, p *payload.Source, state tftypes.Value) {
	t.Helper()
	r := newRun(t, f, h, p)
	now := r.read(state)
	if now.IsNull() {
		t.Fatal("the node is gone")
	}
	if planned := r.plan(now); !planned.Equal(now) {
		diff, err := now.Diff(planned)
		t.Fatalf("the plan is not empty: %v %v", diff, err)
	}
	if owner := h.LockOwner(); owner != "" {
		t.Fatalf("the machine is locked by %q", owner)
	}
}

// gone destroys the node and fails the test unless the machine is as it was.
func gone(t *testing.T, f *acctest.Fleet, h *acctest.Host, state tftypes.Value, before []string) {
	t.Helper()
	r := newRun(t, f, h, nil)
	if now := r.read(state); !now.IsNull() {
		if left, failed := r.apply(now, r.null()); failed || !left.IsNull() {
			t.Fatalf("destroying failed: %v", left)
		}
	}
	if after := h.Files(); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Fatalf("the machine is not as it was:\nbefore %v\nafter  %v", before, after)
	}
	for _, u := range []string{"moai", "moai-engine"} {
		if _, ok := h.User(u); ok || h.Group(u) {
			t.Fatalf("account %s is left", u)
		}
	}
}

// everyStep runs a test with the run killed before its first change, before its second, and so on, until one is not killed.
func everyStep(t *testing.T, test func(t *testing.T, n int) (killed bool)) {
	const most = 40
	for n := range most {
		killed := false
		t.Run(fmt.Sprint(n), func(t *testing.T) { killed = test(t, n) })
		if t.Failed() || !killed {
			if n < 5 && !t.Failed() {
				t.Errorf("only %d changes were made", n)
			}
			return
		}
	}
	t.Errorf("more than %d changes", most)
}

func TestCreateKilledAtEveryStep(t *testing.T) {
	for _, stateLost := range []bool{false, true} {
		t.Run(fmt.Sprintf("state lost %v", stateLost), func(t *testing.T) {
			everyStep(t, func(t *testing.T, n int) bool {
				f, h := h100(t)
				before := h.Files()
				r := newRun(t, f, h, nil)
				planned := r.plan(r.null())
				h.CutAfter(n)
				state, failed := r.apply(r.null(), planned)
				killed := h.Mend()
				if killed != failed {
					t.Fatalf("killed %v, failed %v", killed, failed)
				}
				if stateLost {
					state = r.null()
				}
				r = newRun(t, f, h, nil)
				if failed || stateLost {
					// Tainted: core destroys what there is, and makes it anew.
					if state = r.read(state); !state.IsNull() {
						if state, failed = r.apply(state, r.null()); failed {
							t.Fatal("what was begun cannot be destroyed")
						}
					}
					if state, failed = r.apply(state, r.plan(state)); failed {
						t.Fatal("the next apply failed")
					}
				}
				settled(t, f, h, nil, state)
				gone(t, f, h, state, before)
				return killed
			})
		})
	}
}

func TestUpgradeKilledAtEveryStep(t *testing.T) {
	next := acctest.Payload(t, "moaid of the next version")
	everyStep(t, func(t *testing.T, n int) bool {
		f, h := h100(t)
		before := h.Files()
		r := newRun(t, f, h, nil)
		state, failed := r.apply(r.null(), r.plan(r.null()))
		if failed {
			t.Fatal("create failed")
		}
		r = newRun(t, f, h, next)
		planned := r.plan(state)
		h.CutAfter(n)
		if after, failed := r.apply(state, planned); !failed {
			state = after
		}
		killed := h.Mend()
		if killed {
			r = newRun(t, f, h, next)
			state = r.read(state)
			planned := r.plan(state)
			if planned.Equal(state) {
				t.Fatal("nothing is left to be finished")
			}
			if state, failed = r.apply(state, planned); failed {
				t.Fatal("the next apply failed")
			}
		}
		settled(t, f, h, next, state)
		if u, _ := h.Unit(kvd); u.Starts < 2 {
			t.Fatal("the daemon still runs the old binary")
		}
		gone(t, f, h, state, before)
		return killed
	})
}

func TestDestroyKilledAtEveryStep(t *testing.T) {
	everyStep(t, func(t *testing.T, n int) bool {
		f, h := h100(t)
		before := h.Files()
		r := newRun(t, f, h, nil)
		state, failed := r.apply(r.null(), r.plan(r.null()))
		if failed {
			t.Fatal("create failed")
		}
		r = newRun(t, f, h, nil)
		h.CutAfter(n)
		left, failed := r.apply(state, r.null())
		killed := h.Mend()
		if killed != failed || failed == left.IsNull() {
			t.Fatalf("killed %v, failed %v, state %v", killed, failed, left)
		}
		if failed {
			gone(t, f, h, left, before)
		}
		return killed
	})
}
