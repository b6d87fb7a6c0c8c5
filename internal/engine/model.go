package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/quantity"
)

// model is the resource as Terraform sees it. Nested values stay framework
// objects, since any part of them may be unknown at plan.
type model struct {
	Name              types.String   `tfsdk:"name"`
	Node              types.Object   `tfsdk:"node"`
	Kind              types.String   `tfsdk:"kind"`
	Role              types.String   `tfsdk:"role"`
	Model             types.Object   `tfsdk:"model"`
	Preset            types.String   `tfsdk:"preset"`
	Parallel          types.Object   `tfsdk:"parallel"`
	GPUs              types.List     `tfsdk:"gpus"`
	KVCache           types.Object   `tfsdk:"kv_cache"`
	KVConnector       types.String   `tfsdk:"kv_connector"`
	Runtime           types.Object   `tfsdk:"runtime"`
	Staging           types.Object   `tfsdk:"staging"`
	Ingest            types.Object   `tfsdk:"ingest"`
	OnTransferFailure types.String   `tfsdk:"on_transfer_failure"`
	ExtraArgs         types.List     `tfsdk:"extra_args"`
	Env               types.Map      `tfsdk:"env"`
	Reference         types.Object   `tfsdk:"reference"`
	Timeouts          timeouts.Value `tfsdk:"timeouts"`

	ID              types.String `tfsdk:"id"`
	Unit            types.String `tfsdk:"unit"`
	EffectiveArgs   types.List   `tfsdk:"effective_args"`
	KVFingerprint   types.String `tfsdk:"kv_fingerprint"`
	KVBytesPerToken types.Int64  `tfsdk:"kv_bytes_per_token"`
	Ready           types.Bool   `tfsdk:"ready"`
	Installed       types.Object `tfsdk:"installed"`
}

var installedType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"unit": types.StringType, "config": types.StringType, "service": types.StringType, "boot": types.StringType, "registration": types.StringType,
}}

// specKnown reports whether nothing is unknown that an engine's arguments and
// cache depend on. The node may still be: only its name matters to them.
func (m model) specKnown(ctx context.Context) bool {
	for _, v := range []attr.Value{
		m.Name, m.Kind, m.Role, m.Model, m.Preset, m.Parallel, m.GPUs, m.KVCache, m.KVConnector, m.Runtime, m.Staging, m.Ingest,
		m.OnTransferFailure, m.ExtraArgs, m.Env, m.Reference,
	} {
		t, err := v.ToTerraformValue(ctx)
		if err != nil || !t.IsFullyKnown() {
			return false
		}
	}
	return true
}

// spec reads a model of which specKnown holds, and fills in the kind's defaults.
func (m model) spec(k engines.Kind) (engines.Spec, error) {
	staging, err := size(m.Staging, "memory")
	if err != nil {
		return engines.Spec{}, fmt.Errorf("staging.memory: %w", err)
	}
	inFlight, err := size(m.Ingest, "max_in_flight")
	if err != nil {
		return engines.Spec{}, fmt.Errorf("ingest.max_in_flight: %w", err)
	}
	s := engines.Spec{
		Name: m.Name.ValueString(), Kind: m.Kind.ValueString(), Role: engines.Role(m.Role.ValueString()),
		Preset:    m.Preset.ValueString(),
		Model:     engines.Model{ID: text(m.Model, "id"), Path: text(m.Model, "path"), Revision: text(m.Model, "revision"), Config: text(m.Model, "config")},
		Parallel:  engines.Parallel{Tensor: number(m.Parallel, "tensor"), Data: number(m.Parallel, "data"), Expert: number(m.Parallel, "expert")},
		KVCache:   engines.KVCache{DType: text(m.KVCache, "dtype"), BlockSize: number(m.KVCache, "block_size"), Layout: text(m.KVCache, "layout")},
		Connector: engines.Connector(m.KVConnector.ValueString()),
		Runtime:   engines.Runtime{Kind: text(m.Runtime, "kind"), Path: text(m.Runtime, "path")},

		StagingBytes: staging, MaxInFlight: inFlight,
		OnTransferFailure: engines.OnFailure(m.OnTransferFailure.ValueString()),
		Reference: engines.Reference{
			WeightsSeed: seed(m.Reference, "weights_seed"), ClaimFingerprintOf: seed(m.Reference, "claim_fingerprint_of"),
			Packing: text(m.Reference, "packing"), Scales: text(m.Reference, "scales"),
			KernelBlockSize: number(m.Reference, "kernel_block_size"), Padding: number(m.Reference, "padding"),
		},
	}
	for _, e := range m.GPUs.Elements() {
		if n, ok := e.(types.Int64); ok {
			s.GPUs = append(s.GPUs, int(n.ValueInt64()))
		}
	}
	for _, e := range m.ExtraArgs.Elements() {
		if a, ok := e.(types.String); ok {
			s.ExtraArgs = append(s.ExtraArgs, a.ValueString())
		}
	}
	for name, e := range m.Env.Elements() {
		if v, ok := e.(types.String); ok && !v.IsNull() {
			if s.Env == nil {
				s.Env = map[string]string{}
			}
			s.Env[name] = v.ValueString()
		}
	}
	return k.Defaults(s), nil
}

func text(o types.Object, name string) string {
	if v, ok := o.Attributes()[name].(types.String); ok {
		return v.ValueString()
	}
	return ""
}

func number(o types.Object, name string) int {
	if v, ok := o.Attributes()[name].(types.Int64); ok {
		return int(v.ValueInt64())
	}
	return 0
}

func seed(o types.Object, name string) *uint64 {
	v, ok := o.Attributes()[name].(types.Int64)
	if !ok || v.IsNull() || v.IsUnknown() || v.ValueInt64() < 0 {
		return nil
	}
	n := uint64(v.ValueInt64())
	return &n
}

func size(o types.Object, name string) (int64, error) {
	if v, ok := o.Attributes()[name].(quantity.Size); ok {
		return v.Amount()
	}
	return 0, nil
}

// setPlanned writes what is known before an engine exists.
func (m *model) setPlanned(d desired) {
	m.Unit = types.StringValue(d.service.Unit)
	args := make([]attr.Value, len(d.launch.Args))
	for i, a := range d.launch.Args {
		args[i] = types.StringValue(a)
	}
	m.EffectiveArgs = types.ListValueMust(types.StringType, args)
	m.KVFingerprint = types.StringValue(fingerprintText(d.fingerprint))
	m.KVBytesPerToken = types.Int64Value(bytesPerToken(d.fingerprint))
}

// fingerprintText is the canonical JSON of a fingerprint.
func fingerprintText(f kvcache.Fingerprint) string {
	b, err := json.Marshal(f)
	if err != nil { // a struct of strings and integers always encodes
		panic(err)
	}
	return string(b)
}

// bytesPerToken is what one more token adds to what travels for a long prompt,
// rounded up: a token's part of the blocks that it fills, padding included.
func bytesPerToken(f kvcache.Fingerprint) int64 {
	var block int64 // all layers that keep every token, each head once
	for i, g := range f.Groups {
		if g.Kind == kvcache.GroupSliding {
			continue
		}
		copies := int64(min(g.Heads, f.Ranks.Tensor))
		block += f.PageBytes(i) * int64(len(g.Layers)) * copies
	}
	tokens := int64(f.Storage.BlockSize)
	return (block + tokens - 1) / tokens
}

// installedObject writes a status.
func installedObject(s status) types.Object {
	return types.ObjectValueMust(installedType.AttrTypes, map[string]attr.Value{
		"unit": types.StringValue(s.Unit), "config": types.StringValue(s.Config), "service": types.StringValue(s.Service),
		"boot": types.StringValue(s.Boot), "registration": types.StringValue(s.registration),
	})
}

// settle replaces what is still unknown by null: a state must hold nothing
// unknown, not even after an error.
func (m *model) settle() {
	for _, s := range []*types.String{&m.ID, &m.Unit, &m.KVFingerprint} {
		if s.IsUnknown() {
			*s = types.StringNull()
		}
	}
	if m.EffectiveArgs.IsUnknown() {
		m.EffectiveArgs = types.ListNull(types.StringType)
	}
	if m.KVBytesPerToken.IsUnknown() {
		m.KVBytesPerToken = types.Int64Null()
	}
	if m.Installed.IsUnknown() {
		m.Installed = types.ObjectNull(installedType.AttrTypes)
	}
	if m.Ready.IsUnknown() {
		m.Ready = types.BoolValue(false)
	}
}
