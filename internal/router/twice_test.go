package router_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
)

const secondRouter = `
resource "moai_router" "back" {
  name   = "back"
  node   = moai_node.gateway
  pairs  = [moai_pd_pair.main]
  listen = "192.0.2.10:8001"
}
`

// TestTwoResourcesThatAreOne: what two resources would both own is refused by the plan, whether one of them is there
// already or not.
func TestTwoResourcesThatAreOne(t *testing.T) {
	l := newLab(t)
	router := func(name, listen string) string {
		return strings.NewReplacer(`name   = "back"`, `name = "`+name+`"`, "192.0.2.10:8001", listen).Replace(secondRouter)
	}
	cases := []struct{ more, want string }{
		{
			`resource "moai_engine" "again" {
  name  = "prefill-0"
  node  = moai_node.h100
  kind  = "reference"
  role  = "decode"
  model = { id = var.model }
}`, `name\s+= "prefill-0".*engine name "prefill-0" on node h100-0 is taken twice`,
		},
		{router("front", "0.0.0.0:8001"), `name\s+= "front".*router name "front" on node gateway is taken twice.*listens on .*listens on `},
		{router("back", "192.0.2.10:8000"), `listen\s+= ".*port 8000 of node gateway is taken twice`},
		{
			`resource "moai_pd_pair" "again" {
  name    = "main"
  prefill = [moai_engine.prefill]
  decode  = [moai_engine.decode]
  links   = [moai_kv_link.main]
}`, `name\s+= "main".*pair name "main" on node .* is taken twice.*h100-0/prefill-0 and mi300x-0/decode-0`,
		},
		{
			`resource "moai_kv_link" "again" {
  name  = "again"
  nodes = [moai_node.mi300x, moai_node.h100]
}`, `nodes\s+= \[.*link between nodes h100-0 and mi300x-0 is taken twice`,
		},
	}
	refused := func() (steps []resource.TestStep) {
		for _, c := range cases {
			want := regexp.MustCompile(`(?s)Two resources are the same thing.*` + strings.ReplaceAll(c.want, " ", `[\s│]+`))
			steps = append(steps, resource.TestStep{Config: l.config + c.more, PlanOnly: true, ExpectError: want})
		}
		return steps
	}
	late := `resource "terraform_data" "name" { input = "front" }` + strings.Replace(router("front", "0.0.0.0:8001"), `"front"`, "terraform_data.name.output", 1)
	steps := append(refused(), resource.TestStep{
		Config: l.config + late, ExpectError: regexp.MustCompile(`(?s)router[\s│]+name[\s│]+"front"[\s│]+on[\s│]+node[\s│]+gateway[\s│]+is[\s│]+taken[\s│]+twice`),
	}, resource.TestStep{Config: l.config})
	l.run(t, append(steps, refused()...)...)
}

// TestResourcesThatAreTwo: what is planned again, replaced, moved, or named as another was, does not stand in its own way.
func TestResourcesThatAreTwo(t *testing.T) {
	l := newLab(t)
	both := l.config + secondRouter
	moved := strings.NewReplacer(`resource "moai_router" "back"`, `resource "moai_router" "other"`).Replace(both) + `
moved {
  from = moai_router.back
  to   = moai_router.other
}
`
	swapped := strings.NewReplacer(`name   = "front"`, `name = "back"`, `name   = "back"`, `name = "front"`, "0.0.0.0:8000", "192.0.2.10:8001", "192.0.2.10:8001", "0.0.0.0:8000").Replace(both)
	changed := func(address string, a plancheck.ResourceActionType) resource.ConfigPlanChecks {
		return resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(address, a)}}
	}
	l.run(t,
		resource.TestStep{Config: both},
		resource.TestStep{Config: both, PlanOnly: true},
		resource.TestStep{Config: both, Taint: []string{"moai_router.back"}, ConfigPlanChecks: changed("moai_router.back", plancheck.ResourceActionReplace)},
		resource.TestStep{Config: moved, ConfigPlanChecks: changed("moai_router.other", plancheck.ResourceActionNoop)},
		resource.TestStep{Config: both + "moved {\n  from = moai_router.other\n  to = moai_router.back\n}\n", PlanOnly: true},
		resource.TestStep{Config: swapped + "moved {\n  from = moai_router.other\n  to = moai_router.back\n}\n", PlanOnly: true, ExpectNonEmptyPlan: true},
		resource.TestStep{
			Config:           strings.Replace(moved, `name   = "back"`, `name = "third"`, 1),
			ConfigPlanChecks: changed("moai_router.other", plancheck.ResourceActionReplace),
		},
		resource.TestStep{
			Config:           strings.Replace(strings.Replace(moved, `name   = "back"`, `name = "third"`, 1), "prefill-0", "prefill-9", 1),
			ConfigPlanChecks: changed("moai_engine.prefill", plancheck.ResourceActionReplace),
		},
	)
}
