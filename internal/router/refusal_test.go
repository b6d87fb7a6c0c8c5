package router_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/moai-dev/terraform-provider-moai/internal/ssh/sshtest"
)

// TestAnotherFleet: what belongs to another fleet is not planned to be changed.
func TestAnotherFleet(t *testing.T) {
	l := newLab(t)
	other := config.Variables{}
	for k, v := range l.variables {
		other[k] = v
	}
	other["fleet"] = config.StringVariable("other")
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: l.Factories(), Steps: []resource.TestStep{
		{Config: l.config, ConfigVariables: l.variables},
		{
			Config: l.config, ConfigVariables: other, PlanOnly: true,
			ExpectError: regexp.MustCompile(`(?s)Machine belongs to another fleet.*moai_node\..*set\s+fleet\s+=\s+"[a-z]+"\s+in\s+the\s+provider\s+block`),
		},
		{Config: l.config, ConfigVariables: l.variables, PlanOnly: true},
	}})
}

// TestForeignUnits: a unit that another fleet put in the place of an engine's or a router's is refused by the plan.
func TestForeignUnits(t *testing.T) {
	l := newLab(t)
	foreign := func(unit string) (*sshtest.Machine, string, sshtest.Entry) {
		m := l.h100.Machine
		if unit == routerUnit {
			m = l.gateway.Machine
		}
		e, _ := m.File("/etc/systemd/system/" + unit)
		return m, "/etc/systemd/system/" + unit, e
	}
	steps := []resource.TestStep{{Config: l.config}}
	for _, c := range []struct{ unit, address string }{{prefillUnit, "moai_engine.prefill"}, {routerUnit, "moai_router.front"}} {
		var m *sshtest.Machine
		var file string
		var ours sshtest.Entry
		steps = append(steps,
			resource.TestStep{
				PreConfig: func() {
					m, file, ours = foreign(c.unit)
					theirs := ours
					theirs.Content = []byte(strings.Replace(string(ours.Content), "moai-fleet: quickstart", "moai-fleet: other", 1))
					m.SetFile(file, theirs)
				},
				Config: l.config, PlanOnly: true,
				ExpectError: regexp.MustCompile(`(?s)Already exists and is not ours.*` + regexp.QuoteMeta(c.address) + `.*of\s+fleet\s+"other"`),
			},
			resource.TestStep{PreConfig: func() { m.SetFile(file, ours) }, Config: l.config, PlanOnly: true})
	}
	l.run(t, steps...)
}

// TestListenAddress: an address that the node has not is refused by the plan.
func TestListenAddress(t *testing.T) {
	l := newLab(t)
	listen := func(addr string) string {
		return l.with(t, `listen = "0.0.0.0:8000"`, fmt.Sprintf("listen = %q", addr))
	}
	l.run(t,
		resource.TestStep{
			Config: listen("192.0.2.1:8000"), PlanOnly: true,
			ExpectError: regexp.MustCompile(`(?s)Node has no such address.*gateway.*192\.0\.2\.1:8000.*It\s+has\s+192\.0\.2\.10`),
		},
		resource.TestStep{Config: listen("192.0.2.10:8000"), PlanOnly: true, ExpectNonEmptyPlan: true},
		resource.TestStep{Config: listen("127.0.0.1:8000"), PlanOnly: true, ExpectNonEmptyPlan: true},
	)
}

// TestRouterThatDoesNotStart is stopped, so that systemd does not start it over and over.
func TestRouterThatDoesNotStart(t *testing.T) {
	l := newLab(t)
	unit := l.gateway.OnUnit
	stopped := false
	l.gateway.OnUnit = func(event, name string) error {
		if name == routerUnit {
			stopped = event == "stop"
		}
		if event == "start" && name == routerUnit {
			return errors.New("listen for clients: address already in use")
		}
		return unit(event, name)
	}
	l.run(t,
		resource.TestStep{Config: l.config, ExpectError: regexp.MustCompile(`(?s)Router cannot listen.*The\s+unit\s+was\s+stopped`)},
		resource.TestStep{
			PreConfig: func() {
				if !stopped {
					t.Error("the router goes on starting over")
				}
				l.gateway.OnUnit = unit
			},
			Config: l.config,
		},
	)
}

// TestChangeThatDoesNotStart: a running router that was changed in vain runs as before.
func TestChangeThatDoesNotStart(t *testing.T) {
	l := newLab(t)
	unit := l.gateway.OnUnit
	l.gateway.OnUnit = func(event, name string) error {
		if c, _ := l.gateway.File("/etc/moai/routers/front.json"); event == "start" && name == routerUnit && strings.Contains(string(c.Content), ":8001") {
			return errors.New("listen for clients: address already in use")
		}
		return unit(event, name)
	}
	l.run(t,
		resource.TestStep{Config: l.config},
		resource.TestStep{
			Config:      l.with(t, `listen = "0.0.0.0:8000"`, `listen = "0.0.0.0:8001"`),
			ExpectError: regexp.MustCompile(`(?s)Router cannot listen.*The\s+router\s+runs\s+as\s+it\s+did\s+before`),
		},
		resource.TestStep{
			Config: l.config,
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction("moai_router.front", plancheck.ResourceActionNoop),
			}},
			Check: func(*terraform.State) error {
				if u, _ := l.gateway.Unit(routerUnit); u.Active != "active" {
					return fmt.Errorf("the router is %s", u.Active)
				}
				return nil
			},
		},
	)
}
