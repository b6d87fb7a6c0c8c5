package engine

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
	"github.com/moai-dev/terraform-provider-moai/internal/quantity"
	"github.com/moai-dev/terraform-provider-moai/internal/timeout"
)

func resourceSchema(ctx context.Context) schema.Schema {
	attrs := map[string]schema.Attribute{
		"name": schema.StringAttribute{
			Required:            true,
			MarkdownDescription: "Name of the engine, unique on its node: 1 to 63 of `a-z`, `0-9` and `-`. Another name is another engine.",
			Validators:          []validator.String{nameValidator{}},
			PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"node": noderef.Attribute("The node that the engine runs on, given whole: `node = moai_node.x`."),
		"kind": schema.StringAttribute{
			Required: true,
			MarkdownDescription: "Kind of engine. This version installs `reference`: a small transformer on the CPU with a real KV cache, to try everything " +
				"out without accelerators. " +
				"Another kind is another engine.",
			PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"role": schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString(string(engines.RoleBoth)),
			MarkdownDescription: "`prefill`, `decode` or `both`. Default `both`.",
		},
		"model":    modelAttribute(),
		"parallel": parallelAttribute(),
		"gpus": schema.ListAttribute{
			Optional: true, ElementType: types.Int64Type,
			MarkdownDescription: "Indexes of the accelerators that the engine uses. The kind `reference` uses none.",
			Validators:          []validator.List{listvalidator.UniqueValues(), listvalidator.ValueInt64sAre(int64validator.AtLeast(0))},
		},
		"kv_cache": schema.SingleNestedAttribute{
			Optional: true, MarkdownDescription: "How the engine keeps its KV. Both ends of a pair must agree in it.",
			Attributes: map[string]schema.Attribute{
				"dtype":      schema.StringAttribute{Optional: true, MarkdownDescription: "Data type of K and V. `reference`: `auto` or `bf16`. Default `auto`."},
				"block_size": schema.Int64Attribute{Optional: true, MarkdownDescription: "Tokens a block. `reference`: 16, 32, 64, 128 or 256. Default `64`."},
			},
		},
		"kv_connector": schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString(string(engines.ConnectorMoai)),
			MarkdownDescription: "How KV leaves and enters the engine: `moai` through the node's KV daemon, `none` for an engine that does prefill and decode " +
				"itself. Default `moai`.",
		},
		"runtime": schema.SingleNestedAttribute{
			Optional: true, MarkdownDescription: "Where the engine's program comes from.",
			Attributes: map[string]schema.Attribute{
				"kind": schema.StringAttribute{Required: true, MarkdownDescription: "`existing`: a program that the host already has."},
				"path": schema.StringAttribute{Optional: true, MarkdownDescription: "Absolute path of the program. `reference`: default `/usr/local/bin/moaid-lab`."},
			},
		},
		"staging": schema.SingleNestedAttribute{
			Optional: true, MarkdownDescription: "Host memory in which KV waits on its way.",
			Attributes: map[string]schema.Attribute{
				"memory": schema.StringAttribute{
					Optional: true, CustomType: quantity.SizeType{},
					MarkdownDescription: "Size such as `\"32GiB\"`, divided over the engine's ranks. The longest prompt's KV must fit in. Default `256MiB`. A change " +
						"restarts the engine.",
				},
			},
		},
		"ingest": schema.SingleNestedAttribute{
			Optional: true, MarkdownDescription: "What the engine lets in of KV from others.",
			Attributes: map[string]schema.Attribute{
				"max_in_flight": schema.StringAttribute{
					Optional: true, CustomType: quantity.SizeType{},
					MarkdownDescription: "KV granted and not yet verified, over all transfers, such as `\"64MiB\"`. Default: the daemon's.",
				},
			},
		},
		"on_transfer_failure": schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString(string(engines.OnFailureRecompute)),
			MarkdownDescription: "What becomes of a request whose KV does not arrive: `recompute` computes the prompt here (counted in the metrics), `fail` " +
				"fails the request. Default `recompute`.",
		},
		"extra_args": schema.ListAttribute{
			Optional: true, ElementType: types.StringType,
			MarkdownDescription: "Further arguments of the engine's program. Arguments that have an attribute of their own are refused.",
		},
		"reference": referenceAttribute(),
		"timeouts": timeout.Attribute(ctx, timeouts.Opts{
			Create: true, Update: true, Delete: true, Read: true,
			CreateDescription: "Default `5m`. An engine that runs but does not serve in time is not an error: `ready` is false, and the next apply goes on waiting.",
			UpdateDescription: "Default `5m`.", DeleteDescription: "Default `5m`, of which running requests get up to 30 seconds.",
			ReadDescription: "Default `1m`. A node that does not answer in time keeps its engines' last known state, with a warning.",
		}),
	}
	for name, a := range computedAttributes() {
		attrs[name] = a
	}
	return schema.Schema{
		MarkdownDescription: "An inference engine on a node, as a hardened systemd unit `moai-engine-<name>.service` of an unprivileged user, registered at " +
			"the node's KV daemon. " +
			"It listens on a unix socket only; clients reach it through a `moai_router`.\n\n" +
			"The plan shows the arguments that it will be started with (`effective_args`) and the format of its KV cache (`kv_fingerprint`), computed offline. " +
			"A change of arguments restarts the engine; a change of the node's address, port or host key does not.",
		Attributes: attrs,
	}
}

func modelAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Required: true, MarkdownDescription: "What the engine runs.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				Required: true,
				MarkdownDescription: "Name of the model; clients write it as `model`. `reference`: `moai/reciting` answers a prompt of more than 887 tokens " +
					"(bytes) with its own text and a shorter one with nonsense, `moai/seeded` and `moai/seeded-wide` have random weights.",
				Validators: []validator.String{stringvalidator.LengthBetween(1, 256)},
			},
			"path": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "Directory of the model on the host. Not for `reference`, whose models are built in.",
				Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"revision": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "Revision of the model. Not for `reference`.",
				Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"config": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "The model's `config.json` (content), from which geometry is computed. Not for `reference`.",
				Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
			},
		},
	}
}

func parallelAttribute() schema.Attribute {
	size := func(what string) schema.Attribute {
		return schema.Int64Attribute{
			Optional: true, MarkdownDescription: what + " Default `1`; `reference` has one rank.",
			Validators: []validator.Int64{int64validator.Between(1, 1024)},
		}
	}
	return schema.SingleNestedAttribute{
		Optional: true, MarkdownDescription: "How the engine is spread over accelerators.",
		Attributes: map[string]schema.Attribute{
			"tensor": size("Tensor-parallel ranks."), "data": size("Data-parallel ranks."), "expert": size("Expert-parallel ranks."),
		},
	}
}

func referenceAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Optional: true, MarkdownDescription: "Settings of the kind `reference` only.",
		Attributes: map[string]schema.Attribute{
			"weights_seed": schema.Int64Attribute{
				Optional: true, MarkdownDescription: "Chooses the weights. Default `1`.", Validators: []validator.Int64{int64validator.AtLeast(0)},
			},
			"claim_fingerprint_of": schema.Int64Attribute{
				Optional: true,
				MarkdownDescription: "Reports the fingerprint of the weights of another seed. It exists for the control that proves that transferred KV is used: " +
					"KV of wrong weights has to change the answers. Never set it otherwise.",
				Validators: []validator.Int64{int64validator.AtLeast(0)},
			},
		},
	}
}

func computedAttributes() map[string]schema.Attribute {
	text := func(d string) schema.Attribute { return schema.StringAttribute{Computed: true, MarkdownDescription: d} }
	return map[string]schema.Attribute{
		"id":   text("`<node>/<name>`."),
		"unit": text("Name of the systemd unit."),
		"effective_args": schema.ListAttribute{
			Computed: true, ElementType: types.StringType,
			MarkdownDescription: "The arguments that the engine is started with. Known at plan.",
		},
		"kv_fingerprint": text("Format and meaning of the KV cache, as JSON. Known at plan, without any host. Engines of a pair must have compatible ones."),
		"kv_bytes_per_token": schema.Int64Attribute{
			Computed: true, MarkdownDescription: "Bytes of KV that one more token of a long prompt adds, over all layers that keep every token. Known at plan.",
		},
		"ready": schema.BoolAttribute{Computed: true, MarkdownDescription: "The last apply finished: the engine served and its KV connector was registered."},
		"installed": schema.SingleNestedAttribute{
			Computed:            true,
			MarkdownDescription: "What became of what was installed. The plan asks for the healthy word in every part, so whatever differs shows as a change that apply makes.",
			Attributes: map[string]schema.Attribute{
				"unit":   text("The unit file: `ok`, `changed`, `missing`, or `foreign` (somebody else put it there, which the plan refuses)."),
				"config": text("The configuration file: `ok`, `changed` or `missing`."),
				"service": text("The service: `active`, `outdated` (runs something else than what is on disk, or a change was interrupted), `missing`, or " +
					"systemd's own word, such as `inactive` or `failed`."),
				"boot": text("Start at boot: `enabled` or `disabled`."),
				"registration": text("What the KV daemon knows of the engine: `ok`, `changed`, `missing`, `draining` (takes no new requests, since a change or " +
					"removal was interrupted; apply ends it), or `unresponsive` when the daemon does not answer."),
			},
		},
	}
}

// nameValidator checks names as the management API does.
type nameValidator struct{}

func (nameValidator) Description(context.Context) string {
	return "1 to 63 of a-z, 0-9 and -, beginning with a letter or a digit"
}
func (v nameValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }
func (nameValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if err := engines.CheckName(req.ConfigValue.ValueString()); err != nil {
		resp.Diagnostics.Append(diagnose.AtError(req.Path, "Invalid name", err.Error()))
	}
}
