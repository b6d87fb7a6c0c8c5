package router

import (
	"context"
	"net"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
	"github.com/moai-dev/terraform-provider-moai/internal/timeout"
)

const (
	defaultName   = "router"
	defaultListen = "0.0.0.0:8000"
)

func resourceSchema(ctx context.Context) schema.Schema {
	text := func(d string) schema.Attribute { return schema.StringAttribute{Computed: true, MarkdownDescription: d} }
	return schema.Schema{
		MarkdownDescription: "The gateway: an OpenAI-compatible HTTP endpoint on a node, as a hardened systemd unit `moai-router-<name>.service`. " +
			"It sends each prompt to a prefill engine and the answer's request to a decode engine, which gets the KV over a link; when prefill or transfer fails, the decode engine does everything, " +
			"which is counted and visible.\n\n" +
			"Its key is made on the node and never leaves it. The public half is pinned on every node of its pairs, and unpinned when the router is destroyed.",
		Attributes: map[string]schema.Attribute{
			"name": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(defaultName),
				MarkdownDescription: "Name of the router, unique on its node. Another name is another router. Default `router`.",
				Validators:          []validator.String{stringvalidator.RegexMatches(fleet.NamePattern(), fleet.NameRule)},
				PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"node": noderef.Attribute("The node that the router runs on, given whole. It needs no accelerator."),
			"pairs": schema.ListNestedAttribute{
				Required: true, NestedObject: pairObject(),
				MarkdownDescription: "Pairs that the router serves, each given whole: `pairs = [moai_pd_pair.x]`. Pairs of one model share its requests.",
				Validators:          []validator.List{listvalidator.SizeAtLeast(1), engineref.Whole("[moai_pd_pair.x]", "name", "model", "prefill", "decode")},
			},
			"listen": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(defaultListen),
				MarkdownDescription: "Address and port for clients, plain HTTP. Default `0.0.0.0:8000`.",
				Validators:          []validator.String{listenValidator{}},
			},
			"timeouts": timeout.Attribute(ctx, timeouts.Opts{
				Create: true, Update: true, Delete: true, Read: true,
				CreateDescription: "Default `5m`.", UpdateDescription: "Default `5m`.", DeleteDescription: "Default `5m`.", ReadDescription: "Default `1m`.",
			}),
			"id":         text("`<node>/<name>`."),
			"endpoint":   text("Base URL of the OpenAI-compatible API, such as `http://192.0.2.10:8000/v1`. Known at plan."),
			"public_key": text("Public half of the router's key, `ed25519:` and base64."),
			"ready":      schema.BoolAttribute{Computed: true, MarkdownDescription: "The last apply finished: the router serves."},
			"installed": schema.SingleNestedAttribute{
				Computed:            true,
				MarkdownDescription: "What became of what was installed. The plan asks for the healthy word in every part, so whatever differs shows as a change that apply makes.",
				Attributes: map[string]schema.Attribute{
					"unit":    text("The unit file: `ok`, `changed`, `missing`, or `foreign` (somebody else put it there, which the plan refuses)."),
					"config":  text("The configuration file: `ok`, `changed` or `missing`."),
					"key":     text("The private key: `ok`, `changed` or `missing`. A missing key is made anew, and the pairs' nodes are told."),
					"service": text("The service: `active`, `outdated` (runs something else than what is on disk, or a change was interrupted), `missing`, or systemd's own word, such as `inactive` or `failed`."),
					"boot":    text("Start at boot: `enabled` or `disabled`."),
				},
			},
			"trust": schema.MapAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Whether each node of the pairs lets the router in, by node: `ok`, `changed`, `missing` or `unresponsive`. The plan asks for `ok`.",
			},
		},
	}
}

// pairObject is a passed pair.
func pairObject() schema.NestedAttributeObject {
	return schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
		"name":    schema.StringAttribute{Optional: true, MarkdownDescription: "Name of the pair."},
		"model":   schema.StringAttribute{Optional: true, MarkdownDescription: "Name under which the pair is served."},
		"prefill": schema.ListNestedAttribute{Optional: true, NestedObject: engineref.PlacedObject(), MarkdownDescription: "Its prefill engines."},
		"decode":  schema.ListNestedAttribute{Optional: true, NestedObject: engineref.PlacedObject(), MarkdownDescription: "Its decode engines."},
	}}
}

// listenValidator checks address:port.
type listenValidator struct{}

// Description implements validator.String.
func (listenValidator) Description(context.Context) string { return "an address and a port" }

// MarkdownDescription implements validator.String.
func (listenValidator) MarkdownDescription(context.Context) string { return "an address and a port" }

// ValidateString implements validator.String.
func (listenValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	v := req.ConfigValue.ValueString()
	if _, err := port(v); err != nil {
		resp.Diagnostics.Append(diagnose.AtError(req.Path, "Invalid address", err.Error()+`. Write it as "0.0.0.0:8000" or "[::]:8000".`))
		return
	}
	if h, _, err := net.SplitHostPort(v); err != nil || h != "" && net.ParseIP(h) == nil {
		resp.Diagnostics.Append(diagnose.AtError(req.Path, "Invalid address", "The host part must be an address of the node, or 0.0.0.0 for all of them."))
	}
}
