package engine

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/quantity"
)

// setSpec writes what an import found on a host, with null for what is the
// kind's default, so that a configuration that leaves it out sees no change.
func (m *model) setSpec(ctx context.Context, s engines.Spec, k engines.Kind) {
	bare := engines.Spec{Name: s.Name, Kind: s.Kind, Role: s.Role, Model: s.Model}
	plain := k.Defaults(bare)
	// Some defaults depend on what else was asked for.
	bare.Preset, bare.Parallel, bare.KVCache = s.Preset, s.Parallel, engines.KVCache{DType: s.KVCache.DType}
	format := k.Defaults(bare)
	bare.KVCache.BlockSize = s.KVCache.BlockSize
	def := k.Defaults(bare)
	attrs := resourceSchema(ctx).Type().(types.ObjectType).AttrTypes //nolint:forcetypeassert // by construction
	object := func(name string, values map[string]attr.Value) types.Object {
		t, ok := attrs[name].(basetypes.ObjectType)
		if !ok {
			return types.ObjectNull(nil)
		}
		set := false
		for _, v := range values {
			set = set || !v.IsNull()
		}
		if !set {
			return types.ObjectNull(t.AttrTypes)
		}
		return types.ObjectValueMust(t.AttrTypes, values)
	}
	m.Name, m.Kind, m.Role = types.StringValue(s.Name), types.StringValue(s.Kind), types.StringValue(string(s.Role))
	m.KVConnector, m.OnTransferFailure = types.StringValue(string(s.Connector)), types.StringValue(string(s.OnTransferFailure))
	m.Model = object("model", map[string]attr.Value{
		"id": types.StringValue(s.Model.ID), "path": optional(s.Model.Path, ""), "revision": optional(s.Model.Revision, ""), "config": optional(s.Model.Config, ""),
	})
	m.Preset = types.StringValue(s.Preset)
	m.Parallel = object("parallel", map[string]attr.Value{
		"tensor": optionalNumber(s.Parallel.Tensor, plain.Parallel.Tensor), "data": optionalNumber(s.Parallel.Data, plain.Parallel.Data), "expert": optionalNumber(s.Parallel.Expert, plain.Parallel.Expert),
	})
	m.KVCache = object("kv_cache", map[string]attr.Value{
		"dtype": optional(s.KVCache.DType, plain.KVCache.DType), "block_size": optionalNumber(s.KVCache.BlockSize, format.KVCache.BlockSize),
		"layout": optional(s.KVCache.Layout, def.KVCache.Layout),
	})
	path := optional(s.Runtime.Path, def.Runtime.Path)
	kind := types.StringNull()
	if !path.IsNull() || s.Runtime.Kind != def.Runtime.Kind {
		kind = types.StringValue(s.Runtime.Kind)
	}
	m.Runtime = object("runtime", map[string]attr.Value{"kind": kind, "path": path})
	m.Staging = object("staging", map[string]attr.Value{"memory": optionalSize(s.StagingBytes, def.StagingBytes)})
	m.Ingest = object("ingest", map[string]attr.Value{"max_in_flight": optionalSize(s.MaxInFlight, def.MaxInFlight)})
	m.Reference = object("reference", map[string]attr.Value{
		"weights_seed": optionalSeed(s.Reference.WeightsSeed), "claim_fingerprint_of": optionalSeed(s.Reference.ClaimFingerprintOf),
		"packing": optional(s.Reference.Packing, def.Reference.Packing), "scales": optional(s.Reference.Scales, def.Reference.Scales),
		"kernel_block_size": optionalNumber(s.Reference.KernelBlockSize, def.Reference.KernelBlockSize),
		"padding":           optionalNumber(s.Reference.Padding, def.Reference.Padding),
	})
	m.GPUs, m.ExtraArgs, m.Env = types.ListNull(types.Int64Type), types.ListNull(types.StringType), types.MapNull(types.StringType)
	if len(s.Env) > 0 {
		es := map[string]attr.Value{}
		for name, v := range s.Env {
			es[name] = types.StringValue(v)
		}
		m.Env = types.MapValueMust(types.StringType, es)
	}
	if len(s.GPUs) > 0 {
		var es []attr.Value
		for _, g := range s.GPUs {
			es = append(es, types.Int64Value(int64(g)))
		}
		m.GPUs = types.ListValueMust(types.Int64Type, es)
	}
	if len(s.ExtraArgs) > 0 {
		var es []attr.Value
		for _, a := range s.ExtraArgs {
			es = append(es, types.StringValue(a))
		}
		m.ExtraArgs = types.ListValueMust(types.StringType, es)
	}
}

func optional(s, def string) types.String {
	if s == def {
		return types.StringNull()
	}
	return types.StringValue(s)
}

func optionalNumber(n, def int) types.Int64 {
	if n == def {
		return types.Int64Null()
	}
	return types.Int64Value(int64(n))
}

func optionalSize(n, def int64) quantity.Size {
	if n == def {
		return quantity.Size{StringValue: basetypes.NewStringNull()}
	}
	return quantity.NewSize(n)
}

func optionalSeed(n *uint64) types.Int64 {
	if n == nil {
		return types.Int64Null()
	}
	return types.Int64Value(int64(*n)) // written by us from an int64
}
