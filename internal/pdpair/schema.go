package pdpair

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/timeout"
)

func resourceSchema(ctx context.Context) schema.Schema {
	return schema.Schema{
		MarkdownDescription: "Pools of prefill and decode engines that exchange KV over links.\n\n" +
			"The first plan already compares the KV cache of every prefill engine with that of every decode engine. Caches of one model that differ in data type, block size, layout " +
			"or number of ranks are converted on the way, by the prefill node's daemon; `conversions` in the plan says how. What cannot work is refused: " +
			"the error names the attribute that differs, both values, why it matters and what to change.\n\n" +
			"Apply tells the nodes' daemons, then sends a canary from every prefill engine to every decode engine (of an engine with data-parallel replicas, one of them): a prompt that nobody has seen is answered by the decode engine alone, and again " +
			"from KV that the prefill engine computed. Equal answers are not enough: the decode engine must not have computed the prompt itself, and the bytes that arrived must be exactly those that " +
			"the geometry of the decode engine's cache gives. A wrong answer is an error. Where the conversion changes values, the answers are not required to be equal: how far they agree is reported. An engine that is not ready is not: `verified` stays false, and the next apply goes on.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{Computed: true, MarkdownDescription: "The pair's name."},
			"name": schema.StringAttribute{
				Optional: true, Computed: true,
				MarkdownDescription: "Name of the pair on all daemons. Default: the names of the first prefill and decode engine. Another name is another pair.",
				Validators:          []validator.String{stringvalidator.RegexMatches(fleet.NamePattern(), fleet.NameRule)},
				PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplace()},
			},
			"prefill": schema.ListNestedAttribute{
				Required: true, NestedObject: engineref.NestedObject(),
				MarkdownDescription: "Engines that read prompts, each given whole: `prefill = [moai_engine.x]`.",
				Validators:          []validator.List{listvalidator.SizeBetween(1, maxPool), engineref.Whole("[moai_engine.x]", engineref.Required()...)},
			},
			"decode": schema.ListNestedAttribute{
				Required: true, NestedObject: engineref.NestedObject(),
				MarkdownDescription: "Engines that write answers, each given whole.",
				Validators:          []validator.List{listvalidator.SizeBetween(1, maxPool), engineref.Whole("[moai_engine.x]", engineref.Required()...)},
			},
			"flex": schema.ListNestedAttribute{
				Optional: true, NestedObject: engineref.NestedObject(),
				MarkdownDescription: "Engines that change sides with the load. This version has none: leave it out, or empty.",
				Validators:          []validator.List{noFlex{}},
			},
			"links": schema.ListNestedAttribute{
				Required: true, NestedObject: linkObject(),
				MarkdownDescription: "Links between the nodes of prefill and decode engines, each given whole: `links = [moai_kv_link.x]`. Every node of a prefill engine must be linked with every node of a decode engine.",
				Validators:          []validator.List{listvalidator.SizeAtLeast(1), engineref.Whole("[moai_kv_link.x]", "name", "nodes")},
			},
			"allow_lossy": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				MarkdownDescription: "Lets KV be converted although values change, such as from bf16 to fp8. The plan warns of what is lost, and every changed value is counted. " +
					"Where several pairs join the same engines, all of them must allow it. Default `false`.",
			},
			"allow_releases": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				MarkdownDescription: "Lets engines of one family and different releases exchange KV. Releases may understand a cache differently without saying so. Default `false`.",
			},
			"timeouts": timeout.Attribute(ctx, timeouts.Opts{
				Create: true, Update: true, Delete: true, Read: true,
				CreateDescription: "Default `5m`.", UpdateDescription: "Default `5m`.", DeleteDescription: "Default `2m`.", ReadDescription: "Default `1m`.",
			}),
			"model": schema.StringAttribute{Computed: true, MarkdownDescription: "Name under which the pair is served: the model of its decode engines."},
			"conversions": schema.ListNestedAttribute{
				Computed:            true,
				MarkdownDescription: "What happens to KV between every prefill and every decode engine. Known at plan, without any host.",
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"prefill": schema.StringAttribute{Computed: true, MarkdownDescription: "The prefill engine, `<node>/<name>`."},
					"decode":  schema.StringAttribute{Computed: true, MarkdownDescription: "The decode engine, `<node>/<name>`."},
					"class": schema.StringAttribute{Computed: true, MarkdownDescription: "`exact`: every value is preserved. `guarded`: every value that both formats have is preserved, and KV that holds another one is not sent, " +
						"so that the decode engine computes the prompt itself. `lossy`: values change (only with `allow_lossy`)."},
					"what": schema.StringAttribute{Computed: true, MarkdownDescription: "What is converted, in one line; `none` if the bytes are sent as they are."},
				}},
			},
			"verified": schema.BoolAttribute{Computed: true, MarkdownDescription: "The last apply sent a canary through every prefill and decode engine, and all of them passed."},
			"ends": schema.MapAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "What each node's daemon holds of the pair, by node: `ok`, `changed`, `missing` or `unresponsive`. The plan asks for `ok`, so whatever differs shows as a change that apply makes.",
			},
		},
	}
}

// maxPool bounds a pool, and with it the canaries of one apply.
const maxPool = 8

// linkObject is a passed link: which nodes it joins. Where they are is no affair
// of a pair.
func linkObject() schema.NestedAttributeObject {
	return schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
		"name": schema.StringAttribute{Optional: true, MarkdownDescription: "Name of the link."},
		"nodes": schema.ListNestedAttribute{
			Optional: true, MarkdownDescription: "The nodes that it joins.",
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"name": schema.StringAttribute{Optional: true, MarkdownDescription: "Name of the node."},
			}},
		},
	}}
}

// noFlex refuses what this version cannot do.
type noFlex struct{}

// Description implements validator.List.
func (noFlex) Description(context.Context) string { return "must be empty" }

// MarkdownDescription implements validator.List.
func (noFlex) MarkdownDescription(context.Context) string { return "must be empty" }

// ValidateList implements validator.List.
func (noFlex) ValidateList(_ context.Context, req validator.ListRequest, resp *validator.ListResponse) {
	if len(req.ConfigValue.Elements()) > 0 {
		resp.Diagnostics.Append(diagnose.AtError(req.Path, "Engines cannot change sides",
			"In this version an engine stays on its side. List each engine under prefill or decode, and leave flex out."))
	}
}
