package router_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
)

// TestPairsOfOneDecodeEngine are made in parallel, and the first apply verifies all of them: a canary counts what its decode
// engine does, so that no other may run meanwhile.
func TestPairsOfOneDecodeEngine(t *testing.T) {
	l := newLab(t)
	pair := regexp.MustCompile(`(?s)resource "moai_pd_pair" "main" \{.*?\n\}\n`).FindString(l.config)
	if pair == "" {
		t.Fatal("the quickstart has no pair")
	}
	more := ""
	var verified []statecheck.StateCheck
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		more += strings.NewReplacer(`"main" {`, `"`+name+`" {`, `= "main"`, `= "`+name+`"`).Replace(pair)
		verified = append(verified, known("moai_pd_pair."+name, tfjsonpath.New("verified"), knownvalue.Bool(true)))
	}
	l.run(t, resource.TestStep{
		Config: l.config + more, ConfigStateChecks: verified,
		ConfigPlanChecks: resource.ConfigPlanChecks{PostApplyPostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
	})
}
