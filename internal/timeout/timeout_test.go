package timeout

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

func TestAttribute(t *testing.T) {
	nested, ok := Attribute(t.Context(), timeouts.Opts{Create: true, Delete: true}).(schema.SingleNestedAttribute)
	if !ok || len(nested.Attributes) != 2 {
		t.Fatalf("%+v", nested)
	}
	for _, name := range []string{"create", "delete"} {
		s, ok := nested.Attributes[name].(schema.StringAttribute)
		if !ok || len(s.Validators) != 1 || s.Validators[0] != (duration{}) {
			t.Errorf("%s: %+v", name, nested.Attributes[name])
		}
	}
}

func TestDuration(t *testing.T) {
	for _, c := range []struct {
		in types.String
		ok bool
	}{
		{types.StringValue("90s"), true},
		{types.StringValue("1h30m"), true},
		{types.StringValue("1.5m"), true},
		{types.StringNull(), true},
		{types.StringUnknown(), true},
		{types.StringValue(""), false},
		{types.StringValue("90"), false},
		{types.StringValue("0s"), false},
		{types.StringValue("-1m"), false},
		{types.StringValue("10 min"), false},
	} {
		var resp validator.StringResponse
		duration{}.ValidateString(t.Context(), validator.StringRequest{Path: path.Root("timeouts").AtName("create"), ConfigValue: c.in}, &resp)
		if resp.Diagnostics.HasError() == c.ok {
			t.Errorf("%s: %v", c.in, resp.Diagnostics)
		}
	}
}
