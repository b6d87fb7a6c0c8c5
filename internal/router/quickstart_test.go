package router_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/moai-dev/terraform-provider-moai/internal/acctest"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh/sshtest"
)

const (
	prefillUnit = "moai-engine-prefill-0.service"
	decodeUnit  = "moai-engine-decode-0.service"
	routerUnit  = "moai-router-front.service"
	trustEntry  = "router-gateway--front"
)

// lab is the quickstart's three machines, with engines behind their daemons.
type lab struct {
	*acctest.Fleet
	engines               *acctest.Engines
	gateway, h100, mi300x *acctest.Host
	config                string
	variables             config.Variables
}

var terraformBlock = regexp.MustCompile(`(?s)\nterraform \{.*?\n\}\n`)

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{Fleet: acctest.NewFleet(t)}
	l.gateway = l.Add("gateway", acctest.Accelerators{Vendor: "none"})
	l.h100 = l.Add("h100-0", acctest.Accelerators{Vendor: "nvidia", Count: 8})
	l.mi300x = l.Add("mi300x-0", acctest.Accelerators{Vendor: "amd", Count: 8})
	l.engines = acctest.NewEngines(l.Fleet)
	var text strings.Builder
	for _, name := range []string{"main.tf", "variables.tf", "outputs.tf"} {
		b, err := os.ReadFile(filepath.Join("..", "..", "examples", "quickstart", name))
		if err != nil {
			t.Fatal(err)
		}
		text.Write(b)
	}
	l.config = terraformBlock.ReplaceAllString("\n"+text.String(), "\n")
	host := func(h *acctest.Host, fabric string) config.Variable {
		v := map[string]config.Variable{
			"address": config.StringVariable(h.Server.Host()), "port": config.IntegerVariable(h.Server.Port()),
			"user": config.StringVariable("ops"), "host_key": config.StringVariable(h.Server.HostKey()),
		}
		if fabric != "" {
			v["fabric_address"] = config.StringVariable(fabric)
		}
		return config.ObjectVariable(v)
	}
	key := func(h *acctest.Host) config.Variable { return config.StringVariable(h.Server.ClientKey().Reveal()) }
	l.variables = config.Variables{
		"gateway": host(l.gateway, ""), "gateway_private_key": key(l.gateway),
		"prefill_host": host(l.h100, "198.51.100.11"), "nvidia_private_key": key(l.h100),
		"decode_host": host(l.mi300x, "198.51.100.12"), "amd_private_key": key(l.mi300x),
	}
	return l
}

// with gives the quickstart with one part of it written otherwise.
func (l *lab) with(t *testing.T, old, replacement string) string {
	t.Helper()
	if !strings.Contains(l.config, old) {
		t.Fatalf("the quickstart has no %q", old)
	}
	return strings.Replace(l.config, old, replacement, 1)
}

func (l *lab) run(t *testing.T, steps ...resource.TestStep) {
	t.Helper()
	for i := range steps {
		if steps[i].Config != "" {
			steps[i].ConfigVariables = l.variables
		}
	}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: l.Factories(), Steps: steps})
}

func known(address string, p tfjsonpath.Path, v knownvalue.Check) statecheck.StateCheck {
	return statecheck.ExpectKnownValue(address, p, v)
}

func word(s string) knownvalue.Check { return knownvalue.StringExact(s) }

func TestQuickstart(t *testing.T) {
	l := newLab(t)
	var before [][]string
	hosts := []*acctest.Host{l.gateway, l.h100, l.mi300x}
	for _, h := range hosts {
		before = append(before, h.Files())
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: l.Factories(),
		CheckDestroy: func(*terraform.State) error {
			if err := l.destroyedInOrder(); err != nil {
				return err
			}
			for i, h := range hosts {
				if after := h.Files(); !slices.Equal(before[i], after) {
					return fmt.Errorf("a machine is not as it was:\nbefore %v\nafter  %v", before[i], after)
				}
			}
			return nil
		},
		Steps: []resource.TestStep{
			{
				Config: l.config, ConfigVariables: l.variables,
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectKnownValue("moai_engine.prefill", tfjsonpath.New("id"), word("h100-0/prefill-0")),
					plancheck.ExpectKnownValue("moai_engine.prefill", tfjsonpath.New("kv_bytes_per_token"), knownvalue.Int64Exact(256)),
					plancheck.ExpectKnownValue("moai_engine.prefill", tfjsonpath.New("kv_fingerprint"), knownvalue.StringRegexp(regexp.MustCompile(`"dtype":"fp8_e4m3fn",.*"block_size":16`))),
					plancheck.ExpectKnownValue("moai_engine.prefill", tfjsonpath.New("effective_args").AtSliceIndex(0), word("engine")),
					plancheck.ExpectKnownValue("moai_pd_pair.main", tfjsonpath.New("conversions"), knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectExact(map[string]knownvalue.Check{
						"prefill": word("h100-0/prefill-0"), "decode": word("mi300x-0/decode-0"), "class": word("exact"),
						"what": knownvalue.StringRegexp(regexp.MustCompile(`storage\.dtype fp8_e4m3fn → fp8_e4m3fnuz.*storage\.block_size 16 → 64`)),
					})})),
					plancheck.ExpectUnknownValue("moai_pd_pair.main", tfjsonpath.New("verified")),
					plancheck.ExpectKnownValue("moai_pd_pair.main", tfjsonpath.New("ends").AtMapKey("mi300x-0"), word("ok")),
					plancheck.ExpectKnownValue("moai_router.front", tfjsonpath.New("endpoint"), word("http://127.0.0.1:8000/v1")),
				}},
				ConfigStateChecks: []statecheck.StateCheck{
					known("moai_engine.decode", tfjsonpath.New("ready"), knownvalue.Bool(true)),
					known("moai_engine.decode", tfjsonpath.New("installed").AtMapKey("registration"), word("ok")),
					known("moai_pd_pair.main", tfjsonpath.New("verified"), knownvalue.Bool(true)),
					known("moai_router.front", tfjsonpath.New("trust").AtMapKey("h100-0"), word("ok")),
				},
				Check: func(*terraform.State) error { return l.inPlace() },
			},
			{Config: l.config, ConfigVariables: l.variables, PlanOnly: true},
		},
	})
	for _, h := range []*acctest.Host{l.h100, l.mi300x} {
		if _, ok := h.Daemon.Trusts(trustEntry); ok {
			t.Error("a destroyed router is still trusted")
		}
	}
}

// destroyedInOrder checks that nothing was taken away from under what still used it.
func (l *lab) destroyedInOrder() error {
	writes := l.mi300x.Daemon.Writes()
	last := -1
	for _, w := range []string{"DELETE /v1/trust/" + trustEntry, "DELETE /v1/pairs/main", "PUT /v1/engines/decode-0/drain", "DELETE /v1/engines/decode-0"} {
		at := -1
		for i, have := range writes {
			if have == w {
				at = i
			}
		}
		if at <= last {
			return fmt.Errorf("%s is missing or out of order in %v", w, writes)
		}
		last = at
	}
	return nil
}

// inPlace checks what an applied quickstart has left on the machines.
func (l *lab) inPlace() error {
	u, _ := l.h100.File("/etc/systemd/system/" + prefillUnit)
	for _, want := range []string{"User=moai-engine", "RuntimeDirectoryMode=0750", "--http-socket=/run/moai-engine-prefill-0/http.sock", "NoNewPrivileges=yes"} {
		if !strings.Contains(string(u.Content), want) {
			return fmt.Errorf("the unit has no %s:\n%s", want, u.Content)
		}
	}
	key, _ := l.gateway.File("/var/lib/moai/router-front/router.key")
	if key.Mode != 0o600 || key.Owner != "moai" {
		return fmt.Errorf("the router's key is %+v", key)
	}
	t, ok := l.mi300x.Daemon.Trusts(trustEntry)
	if !ok || t.Role != "gateway" || t.Node != "gateway" {
		return fmt.Errorf("the decode node trusts %+v", t)
	}
	c, _ := l.gateway.File("/etc/moai/routers/front.json")
	if !strings.Contains(string(c.Content), `"198.51.100.12:9610"`) {
		return fmt.Errorf("the router does not take the fabric: %s", c.Content)
	}
	return nil
}

func TestIncompatiblePairIsRefusedByTheFirstPlan(t *testing.T) {
	l := newLab(t)
	l.run(t, resource.TestStep{
		Config: strings.Replace(l.with(t, `model   = { id = var.model }`, `model   = { id = "moai/seeded" }`),
			`model   = { id = var.model }`, `model   = { id = "moai/seeded-wide" }`, 1),
		PlanOnly:    true,
		ExpectError: regexp.MustCompile(`(?s)Engines cannot exchange KV.*moai_pd_pair\.main.*prefill.*model\.weights\s+is.*groups.*the\s+same\s+model`),
	})
	if w := l.h100.Writes(); len(w) > 0 {
		t.Errorf("the plan changed something: %v", w)
	}
}

func TestRefusedByThePlan(t *testing.T) {
	l := newLab(t)
	step := func(old, replacement, want string) resource.TestStep {
		return resource.TestStep{Config: l.with(t, old, replacement), PlanOnly: true, ExpectError: regexp.MustCompile(want)}
	}
	l.run(t,
		step(`kind    = "reference"`, `kind = "vllm"`, `(?s)Unknown kind of engine.*kind\s+"reference",\s+not\s+"vllm"`),
		step(`role    = "prefill"`, `role = "decode"`, `(?s)Engine has another role.*listed for prefill`),
		step(`role    = "prefill"`, `parallel = { tensor = 8 }`, `(?s)KV format does not fit.*4\s+query\s+heads.*Attribute:\s+parallel\.tensor`),
		step(`id = var.model`, `id = "openai/gpt-oss-120b"`, `(?s)Unknown model.*"moai/reciting"`),
		step(`links   = [moai_kv_link.main]`, `links = [{ name = "x", nodes = [{ name = "h100-0" }, { name = "other" }] }]`, `(?s)No KV link between nodes.*h100-0.*mi300x-0`),
		step(`links   = [moai_kv_link.main]`, "links = [moai_kv_link.main]\n  flex = [moai_engine.decode]", `Engines cannot change sides`),
		step(`listen = "0.0.0.0:8000"`, `listen = "8000"`, `(?s)Invalid address.*"0\.0\.0\.0:8000"`),
		step(`role    = "decode"`, `role = "both"`+"\n  kv_connector = \"none\"", `(?s)Engine moves no KV`),
		step(`role    = "decode"`, `role = "decode"`+"\n  staging = { memory = \"256\" }", `(?s)Invalid quantity.*no unit.*Attribute:\s+staging\.memory`),
		step(`role    = "decode"`, `role = "decode"`+"\n  staging = { memory = \"1KiB\" }", `(?s)Too little staging memory.*16\s+MiB.*Attribute:\s+staging\.memory`),
		step(`role    = "decode"`, `role = "decode"`+"\n  staging = { memory = \"900TiB\" }", `(?s)Too much staging memory.*any\s+host.*Attribute:\s+staging\.memory`),
		step(`role    = "decode"`, `role = "decode"`+"\n  staging = { memory = \"60TiB\" }", `(?s)Too much staging memory.*node\s+mi300x-0.*Attribute:\s+staging\.memory`),
		step(`role    = "decode"`, `role = "decode"`+"\n  kv_cache = { block_size = 7 }", `(?s)Block size not supported.*Attribute:\s+kv_cache\.block_size`),
		step(`role    = "decode"`, `role = "decode"`+"\n  timeouts = { create = \"soon\" }", `(?s)Invalid duration.*"soon".*Attribute:\s+timeouts\.create`),
	)
}

func TestEngineThatDiesAtStart(t *testing.T) {
	l := newLab(t)
	unit := l.h100.OnUnit
	l.h100.OnUnit = func(event, name string) error {
		if event == "start" && name == prefillUnit {
			l.h100.FailNext("journal", sshtest.Reply{Stdout: "moaid-lab engine: cannot listen: out of memory\n"})
			return errors.New("Main process exited, code=exited, status=1/FAILURE")
		}
		return unit(event, name)
	}
	l.run(t,
		resource.TestStep{Config: l.config, ExpectError: regexp.MustCompile(`(?s)Engine prefill-0 died at start.*moai_engine\.prefill.*last log\s+lines.*out of memory`)},
		// What was left is known: once the cause is gone, the next apply finishes.
		resource.TestStep{
			PreConfig: func() { l.h100.OnUnit = unit }, Config: l.config,
			ConfigStateChecks: []statecheck.StateCheck{known("moai_engine.prefill", tfjsonpath.New("ready"), knownvalue.Bool(true))},
		},
	)
}

// TestEngineThatStartsOverAndOver is given up within seconds, not at the timeout.
func TestEngineThatStartsOverAndOver(t *testing.T) {
	l := newLab(t)
	l.h100.Daemon.EngineReady = func(e api.Engine) (bool, string) {
		l.h100.SetUnit(prefillUnit, func(u *sshtest.Unit) { u.NRestarts++ })
		return e.Name != "prefill-0", "the worker of rank 0 has no staging arena yet"
	}
	began := time.Now()
	l.run(t, resource.TestStep{Config: l.config, ExpectError: regexp.MustCompile(`(?s)Engine prefill-0 died at start.*moai_engine\.prefill`)})
	if took := time.Since(began); took > time.Minute { // the timeout is five
		t.Errorf("it took %s", took)
	}
	if !slices.ContainsFunc(l.h100.Calls(), func(c sshtest.Call) bool {
		return c.Verb == "unit" && slices.Equal(c.Args, []string{"stop", prefillUnit})
	}) {
		t.Error("the unit goes on starting over")
	}
}

// TestEngineThatIsRefused is given up when its daemon has said long enough that it will never take it; once the cause
// is gone, the next apply finishes.
func TestEngineThatIsRefused(t *testing.T) {
	l := newLab(t)
	l.h100.Daemon.EngineReady = func(e api.Engine) (bool, string) {
		return e.Name != "prefill-0", "storage.block_size is registered as 16 and reported as 32"
	}
	l.h100.Daemon.EngineRefused = func(api.Engine) string { return "fingerprint" }
	began := time.Now()
	l.run(t,
		resource.TestStep{Config: l.config, ExpectError: regexp.MustCompile(`(?s)Engine prefill-0 is not what was configured.*moai_engine\.prefill.*block_size`)},
		resource.TestStep{
			PreConfig: func() {
				if took := time.Since(began); took > time.Minute { // the timeout is five
					t.Errorf("it took %s", took)
				}
				l.h100.Daemon.EngineReady, l.h100.Daemon.EngineRefused = nil, nil
			},
			Config:            l.config,
			ConfigStateChecks: []statecheck.StateCheck{known("moai_engine.prefill", tfjsonpath.New("ready"), knownvalue.Bool(true))},
		},
	)
}

func TestCanary(t *testing.T) {
	l := newLab(t)
	verified := func(want bool) []statecheck.StateCheck {
		return []statecheck.StateCheck{known("moai_pd_pair.main", tfjsonpath.New("verified"), knownvalue.Bool(want))}
	}
	wrong := func(b acctest.Behaviour, says string) resource.TestStep {
		return resource.TestStep{PreConfig: func() { l.engines.Behave(b) }, Config: l.config, ExpectError: regexp.MustCompile(`(?s)Pair gives wrong answers.*` + says)}
	}
	l.run(t,
		wrong(acctest.WrongKV, `differs\s+from\s+that\s+of\s+the\s+decode\s+engine\s+alone`),
		wrong(acctest.NoOp, `0\s+bytes\s+of\s+KV\s+arrived`),
		wrong(acctest.Recompute, `of\s+the\s+prompt\s+itself`),
		// KV that does not arrive is no error; the pair is finished in place.
		resource.TestStep{
			PreConfig: func() { l.engines.Behave(acctest.NotArrived) }, Config: l.config, ConfigStateChecks: verified(false),
			ExpectNonEmptyPlan: true,
		},
		resource.TestStep{
			PreConfig: func() { l.engines.Behave(acctest.Honest) }, Config: l.config, ConfigStateChecks: verified(true),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction("moai_pd_pair.main", plancheck.ResourceActionUpdate),
				plancheck.ExpectResourceAction("moai_router.front", plancheck.ResourceActionNoop),
			}},
		},
	)
}
