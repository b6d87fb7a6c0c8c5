package pdpair

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat/cases"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
)

// passed is an engine as Terraform passes it to a pair.
func passed(t *testing.T, node, name, role string, f kvcache.Fingerprint) attr.Value {
	t.Helper()
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	of, ok := engineref.NestedObject().Type().(basetypes.ObjectType)
	if !ok {
		t.Fatal("a passed engine is no object")
	}
	model, ok := of.AttrTypes["model"].(basetypes.ObjectType)
	if !ok {
		t.Fatal("model is no object")
	}
	return types.ObjectValueMust(of.AttrTypes, map[string]attr.Value{
		"name": types.StringValue(name), "kind": types.StringValue("reference"), "role": types.StringValue(role),
		"kv_connector": types.StringValue("moai"), "kv_fingerprint": types.StringValue(string(b)),
		"model": types.ObjectValueMust(model.AttrTypes, map[string]attr.Value{"id": types.StringValue("m")}),
		"node":  noderef.Encode(noderef.Ref{Coordinates: fleet.Coordinates{Name: node, Host: "192.0.2.1", Port: 22, Profile: "p"}}),
	})
}

// planned is a pair of two engines, as it comes to the plan.
func planned(t *testing.T, p, d kvcache.Fingerprint, o kvcompat.Options) *model {
	t.Helper()
	engine := engineref.NestedObject().Type()
	return &model{
		Name:       types.StringValue("main"),
		Prefill:    types.ListValueMust(engine, []attr.Value{passed(t, "a", "p", "prefill", p)}),
		Decode:     types.ListValueMust(engine, []attr.Value{passed(t, "b", "d", "decode", d)}),
		Links:      types.ListUnknown(linkObject().Type()),
		AllowLossy: types.BoolValue(o.AllowLossy), AllowReleases: types.BoolValue(o.AllowReleases),
	}
}

// named gives the attributes that a refusal or a conversion names, in order.
func named(lines []string) []string {
	var out []string
	for _, l := range lines {
		name, _, _ := strings.Cut(strings.TrimSpace(l), " ")
		out = append(out, name)
	}
	return out
}

// TestThePlanGivesTheVerdictsOfTheTable runs every pair of the shared table through
// the plan: what is refused, what is converted, and what is warned of.
func TestThePlanGivesTheVerdictsOfTheTable(t *testing.T) {
	t.Parallel()
	for _, c := range cases.All() {
		m := planned(t, c.Prefill, c.Decode, c.Options)
		diags := m.plan(nil)
		if err := asTheTableSays(c, m, diags); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

func asTheTableSays(c cases.Case, m *model, diags diag.Diagnostics) error {
	if c.Class == kvcompat.Refused {
		if len(diags.Errors()) != 1 || diags.Errors()[0].Summary() != "Engines cannot exchange KV" {
			return fmt.Errorf("%v is no refusal", diags)
		}
		var reasons []string
		for line := range strings.Lines(diags.Errors()[0].Detail()) {
			if r, ok := strings.CutPrefix(line, "  - "); ok {
				reasons = append(reasons, r)
			}
		}
		if got := named(reasons); !slices.Equal(got, c.Attributes) {
			return fmt.Errorf("the refusal names %v, not %v", got, c.Attributes)
		}
		return nil
	}
	if diags.HasError() {
		return fmt.Errorf("refused: %v", diags)
	}
	first, ok := m.Conversions.Elements()[0].(types.Object)
	if !ok {
		return fmt.Errorf("conversions are %v", m.Conversions)
	}
	class, _ := first.Attributes()["class"].(types.String)
	what, _ := first.Attributes()["what"].(types.String)
	if class.ValueString() != string(c.Class) {
		return fmt.Errorf("it is %s, not %s", class, c.Class)
	}
	if err := steps(what.ValueString(), c.Attributes); err != nil {
		return err
	}
	if warned := diags.WarningsCount() == 1; warned != (c.Class == kvcompat.Lossy) {
		return fmt.Errorf("class %s is warned of with %v", c.Class, diags)
	}
	return nil
}

// steps checks that a conversion changes just these attributes, in order.
func steps(what string, attributes []string) error {
	if n := strings.Count(what, " → "); n != len(attributes) || (n == 0) != (what == "none") {
		return fmt.Errorf("the conversion is %q, of %d steps, not %v", what, n, attributes)
	}
	rest := what
	for _, a := range attributes {
		_, after, ok := strings.Cut(rest, a+" ")
		if !ok {
			return fmt.Errorf("the conversion is %q, and does not name %s of %v in its place", what, a, attributes)
		}
		rest = after
	}
	return nil
}
