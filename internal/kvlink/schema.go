package kvlink

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
	"github.com/moai-dev/terraform-provider-moai/internal/timeout"
)

const (
	defaultStreams = 4
	maxStreams     = 16
)

func resourceSchema(ctx context.Context) schema.Schema {
	return schema.Schema{
		MarkdownDescription: "A connection for KV between two nodes, in both directions. The public keys of the daemons are exchanged over SSH, pinned on both sides, " +
			"and a probe transfer of a few MiB each way is verified before the resource counts as made.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				Computed: true, MarkdownDescription: "The link's name.",
			},
			"name": schema.StringAttribute{
				Optional: true, Computed: true,
				MarkdownDescription: "Name of the link on both daemons. Default: the names of the two nodes. Another name is another link.",
				Validators: []validator.String{
					stringvalidator.RegexMatches(fleet.NamePattern(), fleet.NameRule), stringvalidator.LengthAtMost(maxName),
				},
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplace()},
			},
			"nodes": noderef.ListAttribute("The two nodes, each given whole: `nodes = [moai_node.a, moai_node.b]`. Their order means nothing.", 2),
			"transport": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(transportAuto),
				MarkdownDescription: "`auto` or `tcp`. `auto` takes the best that both nodes can do. Default `auto`.",
				Validators:          []validator.String{transportValidator{}},
			},
			"encryption": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(string(api.EncryptionAEAD)),
				MarkdownDescription: "`aead`: every chunk of KV is sealed. `none`: KV itself goes in the clear with a checksum a chunk; peers, control and the opening of streams stay authenticated. " +
					"Default `aead`; nothing ever changes it by itself.",
				Validators: []validator.String{stringvalidator.OneOf(string(api.EncryptionAEAD), string(api.EncryptionNone))},
			},
			"streams": schema.Int64Attribute{
				Optional: true, Computed: true, Default: int64default.StaticInt64(defaultStreams),
				MarkdownDescription: "Data streams, 1 to 16. Default `4`.", Validators: []validator.Int64{int64validator.Between(1, maxStreams)},
			},
			"timeouts": timeout.Attribute(ctx, timeouts.Opts{
				Create: true, Update: true, Delete: true, Read: true,
				CreateDescription: "Default `2m`.", UpdateDescription: "Default `2m`.", DeleteDescription: "Default `2m`.", ReadDescription: "Default `1m`.",
			}),
			"verified": schema.BoolAttribute{
				Computed: true, MarkdownDescription: "The last apply moved a few MiB in both directions, and they arrived as sent.",
			},
			"ends": schema.MapAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "What each node's daemon holds of the link, by node: `ok`, `changed`, `missing` or `unresponsive` (the daemon does not answer). The plan asks for `ok`, so whatever differs shows as a change that apply makes.",
			},
		},
	}
}

// transportValidator refuses what this version cannot do, with a sentence that says so.
type transportValidator struct{}

// Description implements validator.String.
func (transportValidator) Description(context.Context) string { return "auto or tcp" }

// MarkdownDescription implements validator.String.
func (transportValidator) MarkdownDescription(context.Context) string { return "`auto` or `tcp`" }

// ValidateString implements validator.String.
func (transportValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	switch v := req.ConfigValue.ValueString(); v {
	case transportAuto, transportTCP:
	case transportRDMA:
		resp.Diagnostics.Append(diagnose.AtError(req.Path, "RDMA is not available", "This version moves KV over TCP only. Use \"auto\", which will take RDMA once it is there, or \"tcp\"."))
	default:
		resp.Diagnostics.Append(diagnose.AtError(req.Path, "Unknown transport", "Transport \""+v+"\" does not exist. Use \"auto\" or \"tcp\"."))
	}
}
