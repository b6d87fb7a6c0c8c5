// Package timeout is the attribute timeouts of every resource: that of the
// framework's own module, with errors that name the operation concerned.
package timeout

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
)

// Attribute is the attribute timeouts with the operations of opts.
func Attribute(ctx context.Context, opts timeouts.Opts) schema.Attribute {
	whole := timeouts.Attributes(ctx, opts)
	nested, ok := whole.(schema.SingleNestedAttribute)
	if !ok {
		return whole
	}
	for name, a := range nested.Attributes {
		if s, ok := a.(schema.StringAttribute); ok {
			s.Validators = []validator.String{duration{}}
			nested.Attributes[name] = s
		}
	}
	return nested
}

// duration accepts positive durations.
type duration struct{}

// Description implements validator.String.
func (duration) Description(context.Context) string { return `a duration such as "90s" or "10m"` }

// MarkdownDescription implements validator.String.
func (d duration) MarkdownDescription(ctx context.Context) string { return d.Description(ctx) }

// ValidateString implements validator.String.
func (d duration) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	v := req.ConfigValue.ValueString()
	if t, err := time.ParseDuration(v); err != nil || t <= 0 {
		resp.Diagnostics.Append(diagnose.AtError(req.Path, "Invalid duration", fmt.Sprintf("%q is no duration. Write %s.", v, d.Description(ctx))))
	}
}
