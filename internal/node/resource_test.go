package node_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/moai-dev/terraform-provider-moai/internal/acctest"
	"github.com/moai-dev/terraform-provider-moai/internal/payload"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh/sshtest"
)

const (
	address = "moai_node.h100_0"
	kvd     = "moai-kvd.service"
	expect  = `  expect = { vendor = "nvidia", gpu = "H100", gpu_count = 2 }`
)

func h100(t *testing.T) (*acctest.Fleet, *acctest.Host) {
	t.Helper()
	f := acctest.NewFleet(t)
	return f, f.Add("h100-0", acctest.Accelerators{Vendor: "nvidia", Count: 2})
}

func attr(name string, v knownvalue.Check) statecheck.StateCheck {
	return statecheck.ExpectKnownValue(address, tfjsonpath.New(name), v)
}

func installed(part string, v knownvalue.Check) statecheck.StateCheck {
	return statecheck.ExpectKnownValue(address, tfjsonpath.New("installed").AtMapKey(part), v)
}

func word(s string) knownvalue.Check { return knownvalue.StringExact(s) }

func TestNodeLife(t *testing.T) {
	f, h := h100(t)
	before := h.Files()
	config := f.ProviderBlock() + h.Node(expect)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: f.Factories(),
		CheckDestroy: func(*terraform.State) error {
			if after := h.Files(); strings.Join(after, "\n") != strings.Join(before, "\n") {
				return fmt.Errorf("the machine is not as it was:\nbefore %v\nafter  %v", before, after)
			}
			for _, u := range []string{"moai", "moai-engine"} {
				if _, ok := h.User(u); ok {
					return fmt.Errorf("user %s is left", u)
				}
			}
			return nil
		},
		Steps: []resource.TestStep{
			{
				Config: config,
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectKnownValue(address, tfjsonpath.New("vendor"), word("nvidia")),
					plancheck.ExpectUnknownValue(address, tfjsonpath.New("machine_id")),
					plancheck.ExpectUnknownValue(address, tfjsonpath.New("driver_version")),
				}},
				ConfigStateChecks: []statecheck.StateCheck{
					attr("id", word("h100-0")),
					attr("machine_id", word(h.MachineID())),
					attr("vendor", word("nvidia")),
					attr("driver_version", word("550.90.07")),
					attr("ready", knownvalue.Bool(true)),
					attr("public_key", knownvalue.StringRegexp(regexp.MustCompile(`^ed25519:`))),
					attr("moaid_version", knownvalue.StringRegexp(regexp.MustCompile(`^[0-9a-f]{12}$`))),
					attr("accelerators", knownvalue.ListSizeExact(2)),
					installed("service", word("active")),
				},
			},
			{Config: config, PlanOnly: true},
			{
				Config:       config,
				ResourceName: address, ImportState: true, ImportStateId: h.ImportID(), ImportStateVerify: true,
				ImportStateVerifyIgnore: []string{"expect"},
			},
			// What changes by itself on a machine is in the state, and is no change in the plan.
			{
				PreConfig: func() {
					h.SetProbe(map[string]sshtest.ProbeSection{"nvidia-smi": {Text: "index, name, uuid, pci.bus_id, memory.total [MiB], driver_version, mig.mode.current\n" +
						"0, NVIDIA H100 80GB HBM3, GPU-1, 00000000:19:00.0, 81559 MiB, 999.1, Disabled\n1, NVIDIA H100 80GB HBM3, GPU-2, 00000000:1A:00.0, 81559 MiB, 999.1, Disabled\n"}})
				},
				Config: config, PlanOnly: true,
			},
			{RefreshState: true, Check: resource.TestCheckResourceAttr(address, "driver_version", "999.1")},
			// An accelerator that was lost is told, and stops no other change.
			{
				PreConfig: func() {
					h.SetProbe(map[string]sshtest.ProbeSection{"lspci": {Text: ""}, "nvidia-smi": {Exit: 127}})
				},
				Config: config, PlanOnly: true,
			},
			{RefreshState: true, Check: resource.TestCheckResourceAttr(address, "vendor", "none")},
			// Another way to the same machine: followed, and nothing is restarted.
			{
				Config: strings.Replace(config, fmt.Sprintf("host = %q", h.Server.Host()), `host = "localhost"`, 1),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction(address, plancheck.ResourceActionUpdate),
					plancheck.ExpectKnownValue(address, tfjsonpath.New("machine_id"), word(h.MachineID())),
				}},
				Check: func(*terraform.State) error { return starts(h, 1) },
			},
		},
	})
}

// starts checks how often the daemon was started.
func starts(h *acctest.Host, want int) error {
	if u, _ := h.Unit(kvd); u.Starts != want {
		return fmt.Errorf("%s was started %d times, want %d", kvd, u.Starts, want)
	}
	return nil
}

func TestNodeWithFabric(t *testing.T) {
	f, h := h100(t)
	config := func(address string) string {
		return f.ProviderBlock() + h.Node(expect+"\n  fabric = { endpoints = [{ address = \""+address+"\" }, { address = \"198.51.100.12\", port = 9700 }] }")
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: f.Factories(),
		Steps: []resource.TestStep{
			{Config: config("198.51.100.11"), Check: func(*terraform.State) error {
				e, _ := h.File("/etc/moai/kvd.json")
				for _, want := range []string{`"198.51.100.11:9610"`, `"198.51.100.12:9700"`} {
					if !strings.Contains(string(e.Content), want) {
						return fmt.Errorf("kvd.json has no %s: %s", want, e.Content)
					}
				}
				return nil
			}},
			{
				Config:       config("198.51.100.11"),
				ResourceName: address, ImportState: true, ImportStateId: h.ImportID(), ImportStateVerify: true,
				ImportStateVerifyIgnore: []string{"expect"},
			},
			// The configuration is written and the restart fails: the next plan knows, and finishes.
			{
				PreConfig: func() { h.Daemon.FailStart(errors.New("address not available")) },
				Config:    config("198.51.100.99"), ExpectError: flexible(`(?s)Could not bring moaid up to date.*address not available`),
			},
			{
				PreConfig: func() { h.Daemon.FailStart(nil); h.SetUnit(kvd, func(u *sshtest.Unit) { u.Active = "active" }) },
				Config:    config("198.51.100.99"),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction(address, plancheck.ResourceActionUpdate),
				}},
				Check: func(*terraform.State) error { return h.Daemon.ListensOn("198.51.100.99:9610") },
			},
		},
	})
}

func TestNodeDriftIsShownAndHealed(t *testing.T) {
	f, h := h100(t)
	config := f.ProviderBlock() + h.Node(expect)
	rounds := []struct {
		damage func()
		shown  map[string]string
	}{
		{func() {
			e, _ := h.File("/etc/systemd/system/" + kvd)
			e.Content = append(e.Content, "\n[Service]\nUser=root\n"...)
			h.SetFile("/etc/systemd/system/"+kvd, e)
			h.SetUnit(kvd, func(u *sshtest.Unit) { u.Enabled = false })
			h.Remove("/etc/moai/owner.json")
		}, map[string]string{"unit": "changed", "boot": "disabled", "marker": "missing", "service": "outdated"}},
		{func() {
			stop(h)
			h.SetFile("/opt/moai/bin/moaid", sshtest.Entry{Content: []byte("another program"), Mode: 0o755})
			h.Remove("/etc/moai/kvd.json")
		}, map[string]string{"service": "inactive", "moaid": "changed", "config": "missing"}},
		{func() { h.Remove("/var/lib/moai/kvd/node.key") }, map[string]string{"key": "missing"}},
		{func() { h.Remove("/etc/systemd/system/" + kvd); stop(h) }, map[string]string{"unit": "missing", "service": "missing"}},
	}
	steps := []resource.TestStep{{Config: config}}
	for _, r := range rounds {
		var shown []resource.TestCheckFunc
		planned := []plancheck.PlanCheck{plancheck.ExpectResourceAction(address, plancheck.ResourceActionUpdate)}
		for part, w := range r.shown {
			shown = append(shown, resource.TestCheckResourceAttr(address, "installed."+part, w))
			planned = append(planned, plancheck.ExpectKnownValue(address, tfjsonpath.New("installed").AtMapKey(part), healthyWord(part)))
		}
		steps = append(steps,
			resource.TestStep{
				PreConfig: r.damage, RefreshState: true, ExpectNonEmptyPlan: true, Check: resource.ComposeAggregateTestCheckFunc(shown...),
			},
			resource.TestStep{
				Config: config,
				ConfigPlanChecks: resource.ConfigPlanChecks{
					PreApply: planned, PostApplyPostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()},
				},
			})
	}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: f.Factories(), Steps: steps})
}

// stop stops the daemon by hand.
func stop(h *acctest.Host) {
	_ = h.OnUnit("stop", kvd) // the fake's stop cannot fail
	h.SetUnit(kvd, func(u *sshtest.Unit) { u.Active, u.MainPID = "inactive", 0 })
}

func healthyWord(part string) knownvalue.Check {
	switch part {
	case "service":
		return word("active")
	case "boot":
		return word("enabled")
	}
	return word("ok")
}

func TestNodeUpgradeIsPlannedAndRestartsOnce(t *testing.T) {
	f, h := h100(t)
	config := f.ProviderBlock() + h.Node(expect)
	next := acctest.Payload(t, "moaid of the next version")
	bin, err := next.For("amd64")
	if err != nil {
		t.Fatal(err)
	}
	resource.UnitTest(t, resource.TestCase{Steps: []resource.TestStep{
		{ProtoV6ProviderFactories: f.Factories(), Config: config},
		{
			ProtoV6ProviderFactories: f.FactoriesWith(next), Config: config,
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction(address, plancheck.ResourceActionUpdate),
				plancheck.ExpectKnownValue(address, tfjsonpath.New("moaid_version"), word(bin.Version())),
			}},
			Check: func(*terraform.State) error { return starts(h, 2) },
		},
	}})
}

// A machine that does not answer keeps its state, with a warning; one that says that nothing is left of the node loses it.
func TestNodeUnreachableIsNotGone(t *testing.T) {
	f, h := h100(t)
	config := f.ProviderBlock() + h.Node(expect)
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: f.Factories(), Steps: []resource.TestStep{
		{Config: config},
		{
			PreConfig: func() { h.Server.Set(sshtest.Fault{Silent: true}); h.Server.DropAll() },
			Config:    config, PlanOnly: true,
		},
		{
			RefreshState: true,
			Check:        resource.TestCheckResourceAttr(address, "machine_id", h.MachineID()),
		},
		{
			Config: config, Destroy: true, ExpectError: flexible(`(?s)did not answer in time.*terraform state rm`),
		},
		{
			PreConfig: func() {
				h.Server.Set(sshtest.Fault{})
				id := h.MachineID()
				h.Reinstall(id)
			},
			Config: config,
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction(address, plancheck.ResourceActionCreate),
			}},
		},
	}})
}

func TestNodeOtherMachineIsReplacement(t *testing.T) {
	f, h := h100(t)
	config := f.ProviderBlock() + h.Node(expect)
	const other = "ffffffffffffffffffffffffffffffff"
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: f.Factories(), Steps: []resource.TestStep{
		{Config: config},
		{
			PreConfig: func() { h.Reinstall(other) },
			Config:    config,
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction(address, plancheck.ResourceActionReplace),
			}},
			ConfigStateChecks: []statecheck.StateCheck{attr("machine_id", word(other))},
		},
	}})
}

func TestNodeFailedCreateIsFinishedByTheNextApply(t *testing.T) {
	f, h := h100(t)
	config := f.ProviderBlock() + h.Node(expect)
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: f.Factories(), Steps: []resource.TestStep{
		{
			PreConfig: func() { h.Daemon.FailStart(errors.New("address already in use")) },
			Config:    config, ExpectError: flexible(`(?s)Could not install moaid.*address already in use`),
		},
		{
			PreConfig:         func() { h.Daemon.FailStart(nil) },
			Config:            config,
			ConfigStateChecks: []statecheck.StateCheck{attr("ready", knownvalue.Bool(true)), installed("service", word("active"))},
		},
		{Config: config, PlanOnly: true},
	}})
}

// The time is over while the daemon still does not answer: what it said last is in the error, and what is there is known.
func TestNodeSilentDaemon(t *testing.T) {
	f, h := h100(t)
	config := f.ProviderBlock() + h.Node(expect+"\n  timeouts = { create = \"4s\" }")
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: f.Factories(), Steps: []resource.TestStep{
		{
			PreConfig: func() { h.Daemon.Mute(true) },
			Config:    config, ExpectError: flexible(`(?s)KV daemon does not come up.*Its last words: moai-kvd\.service: log of the test machine`),
		},
		{
			PreConfig: func() { h.Daemon.Mute(false) },
			Config:    config, ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction(address, plancheck.ResourceActionReplace), // its state was saved
			}},
		},
	}})
}

func TestNodeIsLockedBySomebodyElse(t *testing.T) {
	f, h := h100(t)
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: f.Factories(), Steps: []resource.TestStep{{
		PreConfig:   func() { h.SetLock("fleet prod, run of alice", 0) },
		Config:      f.ProviderBlock() + h.Node(expect+"\n  timeouts = { create = \"3s\" }"),
		ExpectError: flexible(`(?s)is being changed by fleet prod, run of alice`),
	}}})
	if _, ok := h.File("/opt/moai/bin/moaid"); ok {
		t.Error("moaid was installed without the lock")
	}
}

// After a kill -9 the state may know nothing of what was installed. What carries our name is adopted.
func TestNodeAdoptsItsOwn(t *testing.T) {
	f, h := h100(t)
	config := f.ProviderBlock() + h.Node(expect)
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: f.Factories(), Steps: []resource.TestStep{
		{
			PreConfig: func() {
				h.SetFile("/etc/moai/owner.json", sshtest.Entry{Content: []byte(`{"fleet":"test","resource":"moai_node.h100-0","writer":"w","moaid_sha256":"00"}`)})
				h.SetFile("/opt/moai/bin/moaid", sshtest.Entry{Content: []byte("half"), Mode: 0o600})
			},
			Config:            config,
			ConfigStateChecks: []statecheck.StateCheck{installed("moaid", word("ok")), installed("service", word("active"))},
		},
	}})
}

func TestNodeRename(t *testing.T) {
	f, h := h100(t)
	config := f.ProviderBlock() + h.Node(expect)
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: f.Factories(), Steps: []resource.TestStep{
		{Config: config},
		{
			Config: replace(`name = "h100-0"`, `name = "h100-9"`)(config),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction(address, plancheck.ResourceActionReplace),
			}},
			ConfigStateChecks: []statecheck.StateCheck{attr("id", word("h100-9"))},
		},
	}})
}

func TestNodeKeepsTenants(t *testing.T) {
	f, h := h100(t)
	config := f.ProviderBlock() + h.Node(expect)
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: f.Factories(), Steps: []resource.TestStep{
		{Config: config},
		{
			PreConfig: func() { h.SetFile("/etc/moai/engines/prefill-0.json", sshtest.Entry{Content: []byte("{}")}) },
			Config:    config, Destroy: true, ExpectError: flexible(`(?s)still has engines or routers`),
		},
		{
			PreConfig: func() { h.Remove("/etc/moai/engines/prefill-0.json") },
			Config:    config, PlanOnly: true,
		},
	}})
}

func TestNodeWithoutPayload(t *testing.T) {
	f, h := h100(t)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: f.FactoriesWith(&payload.Source{}),
		Steps:                    []resource.TestStep{{Config: f.ProviderBlock() + h.Node(expect), PlanOnly: true, ExpectError: flexible(`built without the moaid payload; run make`)}},
	})
}

// Coordinates and profiles that are known only during apply are tolerated by the plan.
func TestNodeWithUnknownValues(t *testing.T) {
	f, h := h100(t)
	config := `resource "terraform_data" "later" { input = "` + h.Server.Host() + `" }` + "\n" + f.ProviderBlock() +
		replace(fmt.Sprintf("host = %q", h.Server.Host()), "host = terraform_data.later.output")(h.Node(expect))
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: f.Factories(),
		Steps: []resource.TestStep{{
			Config:            config,
			ConfigStateChecks: []statecheck.StateCheck{attr("ready", knownvalue.Bool(true))},
		}},
	})
}

func TestNodeProbeNever(t *testing.T) {
	f, h := h100(t)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: f.Factories(),
		Steps:                    []resource.TestStep{{Config: f.ProviderBlock() + h.Node(`  plan_probe = "never"`), PlanOnly: true, ExpectNonEmptyPlan: true}},
	})
	if n := h.Server.Accepted(); n != 0 {
		t.Errorf("plan_probe = never connected %d times", n)
	}
}

func TestNodeImportRefusals(t *testing.T) {
	f, h := h100(t)
	config := f.ProviderBlock() + h.Node(expect)
	step := func(id, want string) resource.TestStep {
		return resource.TestStep{Config: config, ResourceName: address, ImportState: true, ImportStateId: id, ExpectError: flexible(want)}
	}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: f.Factories(), Steps: []resource.TestStep{
		step("h100-0", `(?s)Invalid import id.*name=h100-0,host=`),
		step(h.ImportID(), `(?s)(Nothing to import|daemon's configuration)`),
	}})
}
