package router_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/moai-dev/terraform-provider-moai/internal/acctest"
)

// TestLossyPair: values that would change are refused by the first plan, unless that is allowed; then equal answers are not
// required, and every daemon knows it. KV that was not used is still an error.
func TestLossyPair(t *testing.T) {
	l := newLab(t)
	bf16 := strings.Replace(l.with(t, `preset  = "h100"`, ``), `preset  = "mi300x"`, `kv_cache = { dtype = "fp8" }`, 1)
	lossy := strings.Replace(bf16, `links   = [moai_kv_link.main]`, "links   = [moai_kv_link.main]\n  allow_lossy = true", 1)
	verified := func(want bool) statecheck.StateCheck {
		return known("moai_pd_pair.main", tfjsonpath.New("verified"), knownvalue.Bool(want))
	}
	allowed := func(want bool) resource.TestCheckFunc {
		return func(*terraform.State) error {
			for _, h := range []*acctest.Host{l.h100, l.mi300x} {
				if p, ok := h.Daemon.Pair("main"); !ok || p.AllowLossy != want {
					return fmt.Errorf("a daemon holds %+v", p)
				}
			}
			return nil
		}
	}
	l.run(t,
		resource.TestStep{
			Config: bf16, PlanOnly: true,
			ExpectError: regexp.MustCompile(`(?s)Engines cannot exchange KV.*moai_pd_pair\.main.*storage\.dtype\s+is\s+bf16\s+on\s+the\s+prefill\s+engine.*allow_lossy.*Attribute:\s+prefill\[0\]`),
		},
		resource.TestStep{
			PreConfig: func() { l.engines.Behave(acctest.Recompute) }, Config: lossy,
			ExpectError: regexp.MustCompile(`(?s)Pair gives wrong answers.*of\s+the\s+prompt\s+itself`),
		},
		resource.TestStep{
			PreConfig: func() { l.engines.Behave(acctest.WrongKV) }, Config: lossy, Check: allowed(true),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue("moai_pd_pair.main", tfjsonpath.New("conversions").AtSliceIndex(0).AtMapKey("class"), word("lossy")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{verified(true)},
		},
		resource.TestStep{Config: lossy, PlanOnly: true},
		// What is allowed no more is told to the daemons, and what the pair is now is proved anew.
		resource.TestStep{PreConfig: func() { l.engines.Behave(acctest.Inexact) }, Config: l.config, Check: allowed(false),
			ConfigStateChecks: []statecheck.StateCheck{verified(false)}, ExpectNonEmptyPlan: true},
		resource.TestStep{PreConfig: func() { l.engines.Behave(acctest.Honest) }, Config: l.config, ConfigStateChecks: []statecheck.StateCheck{verified(true)}},
	)
}

// pools is a fleet with two prefill engines on one host and two decode engines on another and a third.
type pools struct {
	*acctest.Fleet
	hosts map[string]*acctest.Host
}

func newPools(t *testing.T) *pools {
	t.Helper()
	p := &pools{Fleet: acctest.NewFleet(t), hosts: map[string]*acctest.Host{}}
	for name, a := range map[string]acctest.Accelerators{
		"gateway": {Vendor: "none"}, "h100-0": {Vendor: "nvidia", Count: 8}, "mi300x-0": {Vendor: "amd", Count: 8}, "mi300x-1": {Vendor: "amd", Count: 8},
	} {
		p.hosts[name] = p.Add(name, a)
	}
	acctest.NewEngines(p.Fleet)
	return p
}

// engine is a block of an engine.
func engine(name, node, role, preset, more string) string {
	return fmt.Sprintf("resource \"moai_engine\" %q {\n  name = %q\n  node = moai_node.%s\n  kind = \"reference\"\n  role = %q\n  model = { id = \"moai/reciting\" }\n  preset = %q\n  %s\n}\n",
		acctest.Label(name), name, acctest.Label(node), role, preset, more)
}

// config gives the whole configuration; more is added to the blocks of engines, by name.
func (p *pools) config(more map[string]string) string {
	var b strings.Builder
	b.WriteString(p.ProviderBlock())
	for name, h := range p.hosts {
		expect := "expect = { vendor = \"none\" }"
		if name != "gateway" {
			vendor := map[bool]string{true: "nvidia", false: "amd"}[strings.HasPrefix(name, "h100")]
			expect = fmt.Sprintf("expect = { vendor = %q, gpu_count = 8 }\nfabric = { endpoints = [{ address = %q }] }", vendor, "198.51.100.1"+name[len(name)-1:])
		}
		b.WriteString(h.Node(expect))
	}
	for i := range 2 {
		fmt.Fprintf(&b, "resource \"moai_kv_link\" \"l%d\" {\n  name = \"l%d\"\n  nodes = [moai_node.h100_0, moai_node.mi300x_%d]\n}\n", i, i, i)
	}
	for _, e := range []struct{ name, node, role, preset, own string }{
		{"p0", "h100-0", "prefill", "h100", "parallel = { tensor = 2 }\n  gpus = [0, 1]"},
		{"p1", "h100-0", "prefill", "h100", "parallel = { tensor = 4 }\n  gpus = [4, 5, 6, 7]"},
		{"d0", "mi300x-0", "decode", "mi300x", "parallel = { tensor = 2, data = 2 }\n  gpus = [0, 1, 2, 3]"},
		{"d1", "mi300x-1", "decode", "mi300x", ""},
	} {
		own := e.own
		if m, ok := more[e.name]; ok {
			own = m
		}
		b.WriteString(engine(e.name, e.node, e.role, e.preset, own))
	}
	b.WriteString(`resource "moai_pd_pair" "main" {
  name    = "main"
  prefill = [moai_engine.p0, moai_engine.p1]
  decode  = [moai_engine.d0, moai_engine.d1]
  links   = [moai_kv_link.l0, moai_kv_link.l1]
}
resource "moai_router" "front" {
  name  = "front"
  node  = moai_node.gateway
  pairs = [moai_pd_pair.main]
}
`)
	return b.String()
}

// TestPools: engines of one node are apart in everything, each pair of engines is converted as its ranks want it, and the
// canary goes over all of them.
func TestPools(t *testing.T) {
	p := newPools(t)
	config := p.config(nil)
	conversion := func(i int, prefill, decode, says string) plancheck.PlanCheck {
		return plancheck.ExpectKnownValue("moai_pd_pair.main", tfjsonpath.New("conversions").AtSliceIndex(i), knownvalue.ObjectExact(map[string]knownvalue.Check{
			"prefill": word(prefill), "decode": word(decode), "class": word("exact"), "what": knownvalue.StringRegexp(regexp.MustCompile(says)),
		}))
	}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: p.Factories(), Steps: []resource.TestStep{
		{
			Config: config,
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue("moai_pd_pair.main", tfjsonpath.New("conversions"), knownvalue.ListSizeExact(4)),
				conversion(0, "h100-0/p0", "mi300x-0/d0", `e4m3fnuz`),
				conversion(3, "h100-0/p1", "mi300x-1/d1", `ranks\.tensor 4 → 1`),
			}},
			ConfigStateChecks: []statecheck.StateCheck{known("moai_pd_pair.main", tfjsonpath.New("verified"), knownvalue.Bool(true))},
			Check:             func(*terraform.State) error { return p.apart() },
		},
		{Config: config, PlanOnly: true},
	}})
}

// apart checks that the engines of one node share nothing, and that each daemon knows its replicas.
func (p *pools) apart() error {
	h := p.hosts["h100-0"]
	a, okA := h.Daemon.Engine("p0")
	b, okB := h.Daemon.Engine("p1")
	if !okA || !okB || a.Unit == b.Unit || a.HTTPSocket == b.HTTPSocket {
		return fmt.Errorf("engines are %+v and %+v", a, b)
	}
	for _, unit := range []string{a.Unit, b.Unit} {
		if u, ok := h.Unit(unit); !ok || u.Active != "active" {
			return fmt.Errorf("%s is %+v", unit, u)
		}
	}
	d, _ := p.hosts["mi300x-0"].Daemon.Engine("d0")
	if d.DataSize != 2 || d.Fingerprint.Ranks.Tensor != 2 {
		return fmt.Errorf("d0 is registered as %+v", d)
	}
	for _, node := range []string{"h100-0", "mi300x-0", "mi300x-1"} {
		pair, ok := p.hosts[node].Daemon.Pair("main")
		if !ok || len(pair.Prefill) != 2 || len(pair.Decode) != 2 {
			return fmt.Errorf("node %s holds %+v", node, pair)
		}
	}
	front, _ := p.hosts["gateway"].File("/etc/moai/routers/front.json")
	for _, e := range []string{"p0", "p1", "d0", "d1"} {
		if !strings.Contains(string(front.Content), fmt.Sprintf("%q", e)) {
			return fmt.Errorf("the router knows no %s: %s", e, front.Content)
		}
	}
	if !slices.Contains(h.Daemon.Writes(), "PUT /v1/pairs/main") {
		return fmt.Errorf("no pair was put: %v", h.Daemon.Writes())
	}
	return nil
}

// TestPlacementRefusedByThePlan: what two engines of a node cannot both have, and what the node has not.
func TestPlacementRefusedByThePlan(t *testing.T) {
	p := newPools(t)
	step := func(name, own, want string) resource.TestStep {
		return resource.TestStep{Config: p.config(map[string]string{name: own}), PlanOnly: true, ExpectError: regexp.MustCompile(want)}
	}
	same := strings.Replace(p.config(nil), `node = moai_node.mi300x_1`, `node = moai_node.h100_0`, 1)
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: p.Factories(), Steps: []resource.TestStep{
		step("p1", "gpus = [1]", `(?s)Accelerator is taken.*Accelerator\s+[01]\s+of\s+node\s+h100-0\s+belongs\s+to\s+engine\s+p[01].*Attribute:\s+gpus\[[01]\]`),
		step("p1", "gpus = [8]", `(?s)Node has no such accelerator.*8\s+accelerators\s+\(indexes\s+0\s+to\s+7\).*Attribute:\s+gpus\[0\]`),
		step("p1", "gpus = [4, 5]", `(?s)Number of accelerators does not fit.*moai_engine\.p1`),
		step("d1", `staging = { memory = "16MiB" }`+"\n  parallel = { tensor = 2 }", `(?s)Too little staging memory.*2\s+ranks`),
		step("d1", `kv_cache = { layout = "NHD" }`, `(?s)KV layout not supported.*Attribute:\s+kv_cache\.layout`),
		step("d1", `extra_args = ["--kv-dtype=fp16"]`, `(?s)Argument has an attribute of its own.*kv_cache\.dtype.*Attribute:\s+extra_args\[0\]`),
		step("d1", `env = { PYTORCH_HIP_ALLOC_CONF = "expandable_segments:True" }`, `(?s)Setting keeps KV from crossing.*Remove\s+expandable_segments.*Attribute:\s+env\["PYTORCH_HIP_ALLOC_CONF"\]`),
		{Config: same, PlanOnly: true, ExpectError: regexp.MustCompile(`(?s)Engines share a node.*a\s+node\s+has\s+one\s+daemon`)},
	}})
}
