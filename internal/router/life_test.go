package router_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

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

// TestDriftIsShownAndHealed damages one thing after the other behind the provider's back.
func TestDriftIsShownAndHealed(t *testing.T) {
	l := newLab(t)
	appendTo := func(h *acctest.Host, file, text string) {
		e, _ := h.File(file)
		e.Content = append(e.Content, text...)
		h.SetFile(file, e)
	}
	type drift struct {
		address, part, shown string
		damage               func()
	}
	steps := []resource.TestStep{{Config: l.config}}
	for _, round := range [][]drift{
		{
			{"moai_engine.decode", "installed.unit", "changed", func() {
				appendTo(l.mi300x, "/etc/systemd/system/"+decodeUnit, "\n[Service]\nNice=7\n")
			}},
			{"moai_engine.prefill", "installed.boot", "disabled", func() {
				l.h100.SetUnit(prefillUnit, func(u *sshtest.Unit) { u.Enabled = false })
			}},
			{"moai_pd_pair.main", "ends.mi300x-0", "missing", func() { l.mi300x.Daemon.Forget("pairs", "main") }},
			{"moai_router.front", "installed.config", "changed", func() { appendTo(l.gateway, "/etc/moai/routers/front.json", " ") }},
			{"moai_router.front", "trust.h100-0", "missing", func() { l.h100.Daemon.Forget("trust", trustEntry) }},
		},
		{
			{"moai_engine.decode", "installed.config", "missing", func() { l.mi300x.Remove("/etc/moai/engines/decode-0.json") }},
			{"moai_engine.decode", "installed.service", "inactive", func() {
				l.mi300x.SetUnit(decodeUnit, func(u *sshtest.Unit) { u.Active = "inactive" })
			}},
			{"moai_engine.prefill", "installed.registration", "missing", func() { l.h100.Daemon.Forget("engines", "prefill-0") }},
			{"moai_router.front", "installed.key", "missing", func() { l.gateway.Remove("/var/lib/moai/router-front/router.key") }},
		},
	} {
		var shown []resource.TestCheckFunc
		var planned []plancheck.PlanCheck
		for _, d := range round {
			shown = append(shown, resource.TestCheckResourceAttr(d.address, d.part, d.shown))
			planned = append(planned, plancheck.ExpectResourceAction(d.address, plancheck.ResourceActionUpdate))
		}
		steps = append(steps,
			resource.TestStep{
				PreConfig: func() {
					for _, d := range round {
						d.damage()
					}
				},
				RefreshState: true, ExpectNonEmptyPlan: true, Check: resource.ComposeAggregateTestCheckFunc(shown...),
			},
			resource.TestStep{
				Config: l.config,
				ConfigPlanChecks: resource.ConfigPlanChecks{
					PreApply: planned, PostApplyPostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()},
				},
				Check: func(*terraform.State) error { return l.inPlace() },
			})
	}
	l.run(t, steps...)
}

// TestEngineThatIsNotReady is no error, and finished in place.
func TestEngineThatIsNotReady(t *testing.T) {
	l := newLab(t)
	slow := l.with(t, `role    = "decode"`, "role = \"decode\"\n  timeouts = { create = \"13s\", update = \"13s\" }")
	loading := func(e api.Engine) (bool, string) { return e.Name != "decode-0", "loading weights" }
	l.mi300x.Daemon.EngineReady = loading
	l.run(t,
		resource.TestStep{
			Config: slow, ExpectNonEmptyPlan: true,
			ConfigStateChecks: []statecheck.StateCheck{
				known("moai_engine.decode", tfjsonpath.New("ready"), knownvalue.Bool(false)),
				known("moai_pd_pair.main", tfjsonpath.New("verified"), knownvalue.Bool(false)),
				known("moai_router.front", tfjsonpath.New("ready"), knownvalue.Bool(true)),
			},
		},
		resource.TestStep{
			PreConfig: func() { l.mi300x.Daemon.EngineReady = nil }, Config: slow,
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction("moai_engine.decode", plancheck.ResourceActionUpdate),
				plancheck.ExpectResourceAction("moai_pd_pair.main", plancheck.ResourceActionUpdate),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				known("moai_engine.decode", tfjsonpath.New("ready"), knownvalue.Bool(true)),
				known("moai_pd_pair.main", tfjsonpath.New("verified"), knownvalue.Bool(true)),
			},
			Check: func(*terraform.State) error { return starts(l.mi300x, decodeUnit, 1) },
		},
	)
}

func starts(h *acctest.Host, unit string, want int) error {
	if u, _ := h.Unit(unit); u.Starts != want {
		return fmt.Errorf("%s was started %d times, want %d", unit, u.Starts, want)
	}
	return nil
}

// TestVariablesRestart: a variable reaches the unit, another value restarts the engine, the same one changes nothing.
func TestVariablesRestart(t *testing.T) {
	l := newLab(t)
	with := func(value string) string {
		return l.with(t, `role    = "decode"`, fmt.Sprintf("role = \"decode\"\n  env = { GOGC = %q }", value))
	}
	has := func(value string, count int) resource.TestCheckFunc {
		return func(*terraform.State) error {
			unit, _ := l.mi300x.File("/etc/systemd/system/" + decodeUnit)
			if !strings.Contains(string(unit.Content), fmt.Sprintf("Environment=GOGC=%s\n", value)) {
				return fmt.Errorf("the unit is\n%s", unit.Content)
			}
			return starts(l.mi300x, decodeUnit, count)
		}
	}
	empty := resource.ConfigPlanChecks{PostApplyPostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}}
	l.run(t,
		resource.TestStep{Config: with("50"), ConfigPlanChecks: empty, Check: has("50", 1)},
		resource.TestStep{Config: with("75"), ConfigPlanChecks: empty, Check: has("75", 2)},
	)
}

// TestChanges: coordinates are followed and restart nothing; arguments restart the engine; a router goes on when its pair grows.
func TestChanges(t *testing.T) {
	l := newLab(t)
	moved := config.Variables{}
	for k, v := range l.variables {
		moved[k] = v
	}
	moved["prefill_host"] = config.ObjectVariable(map[string]config.Variable{
		"address": config.StringVariable("localhost"), "port": config.IntegerVariable(l.h100.Server.Port()), "user": config.StringVariable("ops"),
		"host_key": config.StringVariable(l.h100.Server.HostKey()), "fabric_address": config.StringVariable("198.51.100.11"),
	})
	small := strings.ReplaceAll(l.config, `runtime = { kind = "existing" }`, `kv_cache = { block_size = 32 }`)
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: l.Factories(), Steps: []resource.TestStep{
		{Config: l.config, ConfigVariables: l.variables},
		{
			Config: l.config, ConfigVariables: moved,
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue("moai_engine.prefill", tfjsonpath.New("ready"), knownvalue.Bool(true)),
				plancheck.ExpectKnownValue("moai_pd_pair.main", tfjsonpath.New("verified"), knownvalue.Bool(true)),
			}},
			Check: func(*terraform.State) error {
				for unit, h := range map[string]*acctest.Host{prefillUnit: l.h100, routerUnit: l.gateway} {
					if err := starts(h, unit, 1); err != nil {
						return err
					}
				}
				return nil
			},
		},
		{Config: l.config, ConfigVariables: moved, PlanOnly: true},
		{
			Config: small, ConfigVariables: moved,
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction("moai_engine.prefill", plancheck.ResourceActionUpdate),
				plancheck.ExpectUnknownValue("moai_engine.prefill", tfjsonpath.New("ready")),
				plancheck.ExpectUnknownValue("moai_pd_pair.main", tfjsonpath.New("verified")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{known("moai_pd_pair.main", tfjsonpath.New("verified"), knownvalue.Bool(true))},
			Check:             func(*terraform.State) error { return starts(l.h100, prefillUnit, 2) },
		},
		{Config: small, ConfigVariables: moved, PlanOnly: true},
	}})
}

// TestRemovalThatFails: an engine that is still there serves on, and one that was left draining is seen and healed.
func TestRemovalThatFails(t *testing.T) {
	l := newLab(t)
	draining := func(want bool) error {
		if got := l.h100.Daemon.Draining("prefill-0"); got != want {
			return fmt.Errorf("prefill-0 is draining: %v, want %v", got, want)
		}
		return nil
	}
	l.run(t,
		resource.TestStep{Config: l.config},
		resource.TestStep{
			PreConfig: func() { l.h100.FailNext("unit", sshtest.Reply{Stderr: "Failed to stop: interrupted", Exit: 70}) },
			Config:    l.config, Taint: []string{"moai_engine.prefill"}, ExpectError: regexp.MustCompile(`(?s)Could not remove the engine`),
		},
		resource.TestStep{
			PreConfig: func() {
				if err := draining(false); err != nil {
					t.Error(err)
				}
				l.h100.Daemon.SetDraining("prefill-0", true)
			},
			RefreshState: true, ExpectNonEmptyPlan: true,
			Check: resource.TestCheckResourceAttr("moai_engine.prefill", "installed.registration", "draining"),
		},
		resource.TestStep{
			Config:           l.config,
			ConfigPlanChecks: resource.ConfigPlanChecks{PostApplyPostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
			Check:            func(*terraform.State) error { return draining(false) },
		},
		resource.TestStep{
			PreConfig: func() { l.h100.Daemon.SetDraining("prefill-0", true) }, Config: l.config,
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction("moai_engine.prefill", plancheck.ResourceActionUpdate),
			}},
			Check: func(*terraform.State) error {
				if err := starts(l.h100, prefillUnit, 2); err != nil { // made anew once, and not for the drain
					return err
				}
				return draining(false)
			},
		},
	)
}

func importID(name, node, profile string, h *acctest.Host) string {
	return strings.NewReplacer("name="+node, "name="+name+",node="+node, "profile="+node, "profile="+profile).Replace(h.ImportID())
}

func TestImport(t *testing.T) {
	l := newLab(t)
	// The test framework cannot read outputs of a state in which they are null.
	l.config, _, _ = strings.Cut(l.config, "\noutput ")
	ignored := []string{"node", "timeouts", "runtime"}
	l.run(t,
		resource.TestStep{Config: l.config},
		resource.TestStep{
			Config: l.config, ResourceName: "moai_engine.prefill", ImportState: true, ImportStateId: importID("prefill-0", "h100-0", "nvidia", l.h100),
			ImportStateVerify: true, ImportStateVerifyIgnore: ignored,
		},
		resource.TestStep{
			Config: l.config, ResourceName: "moai_router.front", ImportState: true, ImportStateId: importID("front", "gateway", "gateway", l.gateway),
			ImportStateVerify: true, ImportStateVerifyIgnore: append(ignored, "pairs", "trust", "installed", "ready"),
		},
		resource.TestStep{
			Config: l.config, ResourceName: "moai_engine.prefill", ImportState: true, ImportStateId: importID("other", "h100-0", "nvidia", l.h100),
			ExpectError: regexp.MustCompile(`Nothing to import`),
		},
		resource.TestStep{
			Config: l.config, ResourceName: "moai_router.front", ImportState: true, ImportStateId: "front",
			ExpectError: regexp.MustCompile(`(?s)Invalid import id.*name=front,node=gateway,.*\[,port=22\]\[,host_key=`),
		},
		resource.TestStep{
			Config: l.config, ResourceName: "moai_engine.prefill", ImportState: true,
			ImportStateId: "name=prefill-0,node=h100-0,profile=nvidia,host=127.0.0.1,port=" + strconv.Itoa(l.h100.Server.Port()),
			ExpectError:   regexp.MustCompile(`(?s)host key not accepted.*add\s+,host_key=`),
		},
		resource.TestStep{
			Config: l.config, ResourceName: "moai_pd_pair.main", ImportState: true, ImportStateId: "Main",
			ExpectError: regexp.MustCompile(`Invalid import id`),
		},
	)
}

// TestUnknownAtPlan: what another resource will know only at apply is tolerated by the plan and checked by the apply.
func TestUnknownAtPlan(t *testing.T) {
	l := newLab(t)
	late := `resource "terraform_data" "late" { input = "moai/seeded" }` + "\n" + strings.ReplaceAll(l.config, "id = var.model", "id = terraform_data.late.output")
	l.run(t, resource.TestStep{
		Config: late,
		ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
			plancheck.ExpectUnknownValue("moai_engine.prefill", tfjsonpath.New("kv_fingerprint")),
			plancheck.ExpectUnknownValue("moai_pd_pair.main", tfjsonpath.New("model")),
		}},
		ConfigStateChecks: []statecheck.StateCheck{
			known("moai_pd_pair.main", tfjsonpath.New("model"), word("moai/seeded")),
			known("moai_pd_pair.main", tfjsonpath.New("verified"), knownvalue.Bool(true)),
		},
	})
}

// TestOwnership: what an interrupted run has left is taken over; what belongs to somebody else is refused.
func TestOwnership(t *testing.T) {
	l := newLab(t)
	unit := "/etc/systemd/system/" + prefillUnit
	noEngines, rest, _ := strings.Cut(l.config, `resource "moai_engine"`)
	_, rest, _ = strings.Cut(rest, `resource "moai_router"`)
	_, rest, _ = strings.Cut(rest, "\n}\n")
	rest, _, _ = strings.Cut(rest, "\noutput ")
	noEngines += rest
	var ours sshtest.Entry
	l.run(t,
		resource.TestStep{Config: l.config, Check: func(*terraform.State) error {
			ours, _ = l.h100.File(unit)
			return nil
		}},
		resource.TestStep{Config: noEngines},
		resource.TestStep{
			PreConfig: func() { l.h100.SetFile(unit, sshtest.Entry{Content: []byte("[Service]\nExecStart=/bin/true\n")}) },
			Config:    l.config, ExpectError: regexp.MustCompile(`(?s)Already exists and is not ours.*moai_engine\.prefill`),
		},
		resource.TestStep{PreConfig: func() { l.h100.SetFile(unit, ours) }, Config: l.config},
	)
}

const kvdUnit = "moai-kvd.service"

// TestUnreachableIsNotGone: a host that cannot be reached keeps the state of what is on it.
func TestUnreachableIsNotGone(t *testing.T) {
	l := newLab(t)
	l.run(t,
		resource.TestStep{Config: l.config},
		resource.TestStep{
			PreConfig:    func() { l.mi300x.Server.Set(sshtest.Fault{CloseConns: 1 << 20}) },
			RefreshState: true,
			Check: resource.ComposeTestCheckFunc(
				resource.TestCheckResourceAttr("moai_engine.decode", "installed.service", "active"),
				resource.TestCheckResourceAttr("moai_pd_pair.main", "ends.mi300x-0", "ok"),
				resource.TestCheckResourceAttr("moai_router.front", "trust.mi300x-0", "ok"),
			),
		},
		// Nor does it hide what another host shows: a daemon that is stopped there.
		resource.TestStep{
			PreConfig: func() {
				_ = l.h100.OnUnit("stop", kvdUnit) // the fake's stop cannot fail
				l.h100.SetUnit(kvdUnit, func(u *sshtest.Unit) { u.Active = "inactive" })
			},
			RefreshState: true, ExpectNonEmptyPlan: true,
			Check: resource.ComposeTestCheckFunc(
				resource.TestCheckResourceAttr("moai_pd_pair.main", "ends.mi300x-0", "ok"),
				resource.TestCheckResourceAttr("moai_pd_pair.main", "ends.h100-0", "unresponsive"),
				resource.TestCheckResourceAttr("moai_router.front", "trust.mi300x-0", "ok"),
				resource.TestCheckResourceAttr("moai_router.front", "trust.h100-0", "unresponsive"),
			),
		},
		resource.TestStep{PreConfig: func() { l.mi300x.Server.Set(sshtest.Fault{}) }, Config: l.config},
		resource.TestStep{
			Config: l.config, PlanOnly: true,
		},
		// What is on it stays in the state, and goes once it can be reached.
		resource.TestStep{
			PreConfig: func() { l.mi300x.Server.Set(sshtest.Fault{CloseConns: 1 << 20}) },
			Config:    l.config, Destroy: true, ExpectError: regexp.MustCompile(`(?s)Host unreachable.*router\s+stays\s+in\s+the\s+state`),
		},
		resource.TestStep{PreConfig: func() { l.mi300x.Server.Set(sshtest.Fault{}) }, Config: l.config},
		// Proof of absence: the machine answers, and nothing of the engine is on it.
		resource.TestStep{
			PreConfig: func() {
				l.mi300x.SetUnit(decodeUnit, func(u *sshtest.Unit) { u.Active = "inactive" })
				l.mi300x.Remove("/etc/systemd/system/" + decodeUnit)
				l.mi300x.Remove("/etc/moai/engines/decode-0.json")
				l.mi300x.Daemon.Forget("engines", "decode-0")
			},
			Config: l.config,
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction("moai_engine.decode", plancheck.ResourceActionCreate),
			}},
		},
	)
}
