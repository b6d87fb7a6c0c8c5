package engineref

import (
	"context"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
)

// engine makes a passed engine, with some attributes replaced.
func engine(t *testing.T, replaced map[string]attr.Value) types.Object {
	t.Helper()
	objectType, ok := NestedObject().Type().(basetypes.ObjectType)
	if !ok {
		t.Fatal("the nested object is no object")
	}
	model, ok := objectType.AttrTypes["model"].(basetypes.ObjectType)
	if !ok {
		t.Fatal("model is no object")
	}
	values := map[string]attr.Value{
		"name": types.StringValue("prefill-0"), "kind": types.StringValue("reference"), "role": types.StringValue("prefill"),
		"kv_connector": types.StringValue("moai"), "kv_fingerprint": types.StringValue("{}"),
		"model": types.ObjectValueMust(model.AttrTypes, map[string]attr.Value{"id": types.StringValue("moai/seeded")}),
		"node": noderef.Encode(noderef.Ref{Coordinates: fleet.Coordinates{
			Name: "h100-0", MachineID: "0123456789abcdef0123456789abcdef", Host: "192.0.2.11", Port: 22, Profile: "nvidia",
		}}),
	}
	for k, v := range replaced {
		values[k] = v
	}
	return types.ObjectValueMust(objectType.AttrTypes, values)
}

func TestDecode(t *testing.T) {
	t.Parallel()
	r := Decode(engine(t, nil))
	if !r.Known || r.ID() != "h100-0/prefill-0" || r.Model != "moai/seeded" || !r.Role.Prefills() || r.Role.Decodes() {
		t.Errorf("got %+v", r)
	}
	for name, v := range map[string]attr.Value{
		"kv_fingerprint": types.StringUnknown(),
		"model":          types.ObjectUnknown(engine(t, nil).Attributes()["model"].(types.Object).AttributeTypes(t.Context())), //nolint:forcetypeassert // by construction
		"node":           types.ObjectUnknown(noderef.Type().AttrTypes),
	} {
		if Decode(engine(t, map[string]attr.Value{name: v})).Known {
			t.Errorf("an engine with unknown %s is known", name)
		}
	}
	if _, ok := DecodeList(types.ListUnknown(NestedObject().Type())); ok {
		t.Error("an unknown list is known")
	}
}

func TestFollowList(t *testing.T) {
	t.Parallel()
	f := fleet.New(t.Context(), fleet.Settings{Fleet: "prod"})
	t.Cleanup(f.Close)
	list := types.ListValueMust(NestedObject().Type(), []attr.Value{engine(t, nil)})
	if got := FollowList(t.Context(), f, list); !got.Equal(list) {
		t.Errorf("without a registration got %v", got)
	}
	f.Register(fleet.Coordinates{Name: "h100-0", MachineID: "0123456789abcdef0123456789abcdef", Host: "203.0.113.9", Port: 22, Profile: "nvidia"})
	refs, ok := DecodeList(FollowList(t.Context(), f, list))
	if !ok || refs[0].Node.Host != "203.0.113.9" || refs[0].Fingerprint != "{}" {
		t.Errorf("got %+v", refs)
	}
}

func TestWhole(t *testing.T) {
	t.Parallel()
	objectType := NestedObject().Type()
	for _, c := range []struct {
		name string
		list types.List
		bad  bool
	}{
		{"whole", types.ListValueMust(objectType, []attr.Value{engine(t, nil)}), false},
		{"unknown list", types.ListUnknown(objectType), false},
		{"unknown element", types.ListValueMust(objectType, []attr.Value{types.ObjectUnknown(engine(t, nil).AttributeTypes(t.Context()))}), false},
		{"null element", types.ListValueMust(objectType, []attr.Value{types.ObjectNull(engine(t, nil).AttributeTypes(t.Context()))}), true},
		{"part missing", types.ListValueMust(objectType, []attr.Value{engine(t, map[string]attr.Value{"role": types.StringNull()})}), true},
	} {
		var resp validator.ListResponse
		Whole("[moai_engine.x]", Required()...).ValidateList(context.Background(), validator.ListRequest{Path: path.Root("prefill"), ConfigValue: c.list}, &resp)
		if resp.Diagnostics.HasError() != c.bad {
			t.Errorf("%s: %v", c.name, resp.Diagnostics)
		}
	}
}
