package engine

import (
	"context"
	"fmt"
	"strings"

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
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
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
		"model": modelAttribute(),
		"preset": schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString("default"),
			MarkdownDescription: "Where the format of the KV cache comes from, as far as `kv_cache` and `reference` do not say otherwise. `reference`: " + presetText() +
				" Default `default`. What came of it is in `effective_args`.",
		},
		"parallel": parallelAttribute(),
		"gpus": schema.ListAttribute{
			Optional: true, ElementType: types.Int64Type,
			MarkdownDescription: "Indexes of the node's accelerators that the engine is placed on: one for each rank (`parallel.tensor` × `parallel.data`). " +
				"The plan refuses indexes that the node does not have, and those that another engine of the node has. " +
				"The kind `reference` runs on the CPU all the same: for it they are a label.",
			Validators: []validator.List{listvalidator.UniqueValues(), listvalidator.ValueInt64sAre(int64validator.AtLeast(0))},
		},
		"kv_cache": schema.SingleNestedAttribute{
			Optional: true, MarkdownDescription: "How the engine keeps its KV. The engines of a pair may differ in it: KV is converted on its way, where that changes no value (see `moai_pd_pair`).",
			Attributes: map[string]schema.Attribute{
				"dtype": schema.StringAttribute{Optional: true, MarkdownDescription: "Data type of K and V. `reference`: `auto` (the preset's), `bf16`, `fp16`, `fp32`, `fp8` (the one that the preset's " +
					"accelerator has), `fp8_e4m3fn` or `fp8_e4m3fnuz`. Default `auto`."},
				"block_size": schema.Int64Attribute{Optional: true, MarkdownDescription: "Tokens a block. `reference`: 16, 32, 64, 128 or 256. Default: the preset's."},
				"layout": schema.StringAttribute{Optional: true, MarkdownDescription: "Order of the cache in memory, slowest index first: `L` layer, `B` block, `H` head, `N` token, `C` content. " +
					"The names HND (`LBHNC`) and NHD (`LBNHC`) of before are not accepted. `reference`: " + codes(kvcache.Orders()) + ". Default: the preset's."},
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
					MarkdownDescription: "Size such as `\"32GiB\"`, divided over the engine's ranks (`parallel.tensor` × `parallel.data`). Each part must hold its rank's share of the longest prompt's KV. " +
						"Default `256MiB`, or 16 MiB a rank if that is more. A change restarts the engine.",
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
			MarkdownDescription: "Further arguments of the engine's program. Arguments that have an attribute of their own are refused, and those that the program does not have.",
		},
		"env": schema.MapAttribute{
			Optional: true, ElementType: types.StringType,
			MarkdownDescription: "Environment variables of the engine's program. The plan refuses values with which KV could not cross. They stand in the state and in the unit file, " +
				"which every user of the host can read: no secrets. A change restarts the engine.",
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
				MarkdownDescription: "Name of the model; clients write it as `model`. `reference` has its models built in. `moai/reciting`, `moai/reciting-wide` (8 KV heads) and " +
					"`moai/latent-reciting` (multi-head latent attention) answer a prompt of more than 887 tokens (bytes) with its own text and a shorter one with nonsense, `moai/reciting-near` one of more than 185. " +
					"`moai/seeded`, `moai/seeded-wide`, `moai/seeded-heads` (8 KV heads), `moai/latent` and `moai/moe` (a mixture of experts) have random weights.",
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
			Optional: true, MarkdownDescription: what + " Default `1`.",
			Validators: []validator.Int64{int64validator.Between(1, 1024)},
		}
	}
	return schema.SingleNestedAttribute{
		Optional: true, MarkdownDescription: "How the engine is spread over accelerators.",
		Attributes: map[string]schema.Attribute{
			"tensor": size("Tensor-parallel ranks, over which each layer's heads are divided. The engines of a pair may have different numbers. `reference`: 1, 2, 4 or 8, each a process."),
			"data":   size("Data-parallel replicas, each with all tensor-parallel ranks and a KV cache of its own. `reference`: 1 to 4."),
			"expert": size("Expert-parallel ranks. `reference`: 1."),
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
			"packing": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "How K and V of a page are interleaved: " + codes(kvcache.Packings()) + ". Default: the preset's.",
			},
			"scales": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "Factors of an fp8 cache: `none`, `tensor` (one for K and one for V a layer) or `head`. Default: the preset's, and `none` for a cache that is not fp8.",
			},
			"kernel_block_size": schema.Int64Attribute{
				Optional:            true,
				MarkdownDescription: "Tokens of a block as the attention kernel sees it; divides `kv_cache.block_size`. Default: the same.",
				Validators:          []validator.Int64{int64validator.AtLeast(1)},
			},
			"padding": schema.Int64Attribute{
				Optional:            true,
				MarkdownDescription: "Unused bytes at the end of each page, a multiple of 16. Default: the preset's.",
				Validators:          []validator.Int64{int64validator.Between(0, 1<<20)},
			},
		},
	}
}

// presetText describes the presets from their values.
func presetText() string {
	var parts []string
	for _, name := range refmodel.FormatNames() {
		f, err := refmodel.LookupFormat(name)
		if err != nil {
			continue
		}
		parts = append(parts, fmt.Sprintf("`%s` (%s, scales %s, blocks of %d tokens, %s)", name, f.DType, f.Scales, f.BlockSize, f.Order))
	}
	return strings.Join(parts, ", ") + "."
}

// codes lists named values as code.
func codes[T ~string](vs []T) string {
	out := make([]string, len(vs))
	for i, v := range vs {
		out[i] = "`" + string(v) + "`"
	}
	return strings.Join(out, ", ")
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
			Computed: true, MarkdownDescription: "Bytes of KV that one more token of a long prompt adds to what crosses the network to this engine, over all ranks and all layers that keep every token: each head once, padding included, rounded up. Known at plan.",
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
