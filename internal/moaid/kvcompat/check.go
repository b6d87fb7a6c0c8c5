package kvcompat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// Reason is one way in which two caches differ so that no KV may cross.
type Reason struct {
	Attribute string `json:"attribute"` // of the fingerprint, e.g. "head_dim"
	Prefill   string `json:"prefill"`   // value on the prefill engine
	Decode    string `json:"decode"`    // value on the decode engine
	Why       string `json:"why"`       // what would go wrong
	Fix       string `json:"fix"`       // what the operator can change
}

func (r Reason) String() string {
	return fmt.Sprintf("%s is %s on the prefill engine and %s on the decode engine: %s. %s.", r.Attribute, r.Prefill, r.Decode, r.Why, r.Fix)
}

// Verdict is the answer to "may decode read what prefill wrote".
type Verdict struct {
	Compatible bool     `json:"compatible"`
	Reasons    []Reason `json:"reasons,omitempty"` // why not; empty when Compatible
}

// Err is nil for a compatible pair and otherwise names every reason.
func (v Verdict) Err() error {
	if v.Compatible {
		return nil
	}
	parts := make([]string, len(v.Reasons))
	for i, r := range v.Reasons {
		parts[i] = r.String()
	}
	return fmt.Errorf("incompatible KV caches: %s", strings.Join(parts, " "))
}

// Check compares the cache that prefill writes with the one that decode reads.
// Both fingerprints must be valid.
func Check(prefill, decode kvcache.Fingerprint) Verdict {
	var rs []Reason
	add := func(attr string, p, d any, why, fix string) {
		rs = append(rs, Reason{Attribute: attr, Prefill: fmt.Sprint(p), Decode: fmt.Sprint(d), Why: why, Fix: fix})
	}
	if prefill.KVHeads != decode.KVHeads {
		add("kv_heads", prefill.KVHeads, decode.KVHeads, "the models have different attention", "Run the same model on both engines")
	}
	if prefill.HeadDim != decode.HeadDim {
		add("head_dim", prefill.HeadDim, decode.HeadDim, "the models have different attention", "Run the same model on both engines")
	}
	if !slices.EqualFunc(prefill.Groups, decode.Groups, equalGroup) {
		add("groups", groups(prefill.Groups), groups(decode.Groups), "the layers keep different tokens", "Run the same model on both engines, with the hybrid KV cache on in both or in neither")
	}
	if prefill.ModelHash != decode.ModelHash {
		add("model_hash", short(prefill.ModelHash), short(decode.ModelHash), "KV of other weights decodes to other text without any error", "Give both engines the same model and revision")
	}
	if prefill.DType != decode.DType {
		add("dtype", prefill.DType, decode.DType, "the same bytes mean other numbers", "Set kv_cache.dtype to the same value on both engines")
	}
	if prefill.Layout != decode.Layout {
		add("layout", prefill.Layout, decode.Layout, "the pages order heads and tokens differently", "Use the same kv_cache layout on both engines")
	}
	if prefill.BlockSize != decode.BlockSize {
		add("block_size", prefill.BlockSize, decode.BlockSize, "blocks hold different numbers of tokens", "Set kv_cache.block_size to the same value on both engines")
	}
	if prefill.TensorSize != decode.TensorSize {
		add("tensor_size", prefill.TensorSize, decode.TensorSize, "heads are split over ranks differently", "Set parallel.tensor to the same value on both engines")
	}
	if prefill.Engine != decode.Engine {
		add("engine", prefill.Engine, decode.Engine, "engine releases may order pages differently", "Run the same kind and release on both engines")
	}
	return Verdict{Compatible: len(rs) == 0, Reasons: rs}
}

func equalGroup(a, b kvcache.Group) bool {
	return a.Kind == b.Kind && a.Window == b.Window && slices.Equal(a.Layers, b.Layers)
}

func groups(gs []kvcache.Group) string {
	parts := make([]string, len(gs))
	for i, g := range gs {
		parts[i] = fmt.Sprintf("%s of %d layers", g.Kind, len(g.Layers))
		if g.Kind == kvcache.GroupSliding {
			parts[i] += fmt.Sprintf(" over %d tokens", g.Window)
		}
	}
	return strings.Join(parts, " and ")
}

func short(hash string) string {
	if len(hash) > 12 {
		return hash[:12]
	}
	return hash
}
