// Package cases is a table of pairs of KV caches with the verdict that each must
// get, whoever asks: the provider at plan and the daemons at a handshake hold
// themselves to the same table.
package cases

import (
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
)

// Case is a pair of caches with its verdict.
type Case struct {
	Name            string
	Prefill, Decode kvcache.Fingerprint
	Options         kvcompat.Options
	Class           kvcompat.Class
	// Attributes are those that the verdict names, in order: of its reasons if it
	// is [kvcompat.Refused], otherwise of its steps.
	Attributes []string
}

// Named lists the attributes that a verdict names, as [Case.Attributes] has them.
func Named(v kvcompat.Verdict) []string {
	var out []string
	for _, r := range v.Reasons {
		out = append(out, r.Attribute)
	}
	for _, s := range v.Steps {
		out = append(out, s.Attribute)
	}
	return out
}

// All gives the whole table, made anew on each call.
func All() []Case {
	var out []Case
	for _, f := range []func() []Case{allowed, lossy, refusedIdentity, refusedStorage, refusedShape} {
		out = append(out, f()...)
	}
	return out
}

// H100 is the cache of a dense model of 8 KV heads of 128 as vLLM keeps it by
// default on 8 H100s with the fp8 factors of the checkpoint.
func H100() kvcache.Fingerprint {
	return kvcache.Fingerprint{
		Version: kvcache.Version,
		Model:   kvcache.Model{Config: "config", Weights: "weights", Tokenizer: "tokenizer", ChatTemplate: "template"},
		Engine:  kvcache.Engine{Family: "vllm", Release: "0.33.0+cu129", Attention: "FLASH_ATTN"},
		Storage: kvcache.Storage{DType: kvcache.FP8E4M3FN, Scales: kvcache.Scales{Kind: kvcache.ScaleTensor, Hash: "factors"},
			Order: kvcache.OrderLBNHC, Packing: kvcache.PackingPacked, BlockSize: 16, KernelBlock: 16},
		Groups: []kvcache.Group{{Kind: kvcache.GroupFull, Layers: []int{0, 1, 2, 3}, Heads: 8, KeyDim: 128, ValueDim: 128}},
		Ranks:  kvcache.Ranks{Tensor: 4, Pipeline: 1},
	}
}

// MI300X is the same on MI300Xs.
func MI300X() kvcache.Fingerprint {
	f := H100()
	f.Engine.Release, f.Engine.Attention = "0.33.0+rocm700", "ROCM_AITER_UNIFIED_ATTN"
	f.Storage = kvcache.Storage{DType: kvcache.FP8E4M3FNUZ, Scales: kvcache.Scales{Kind: kvcache.ScaleTensor, Hash: "factors", Doubled: true},
		Order: kvcache.OrderLBHNC, Packing: kvcache.PackingPacked, BlockSize: 64, KernelBlock: 64}
	return f
}

// Hybrid is the cache of a model of which every other layer has a window.
func Hybrid() kvcache.Fingerprint {
	f := plain(H100(), kvcache.BF16)
	f.Groups = []kvcache.Group{
		{Kind: kvcache.GroupFull, Layers: []int{1, 3}, Heads: 8, KeyDim: 64, ValueDim: 64},
		{Kind: kvcache.GroupSliding, Window: 128, Layers: []int{0, 2}, Heads: 8, KeyDim: 64, ValueDim: 64},
	}
	return f
}

// Latent is the cache of a model with multi-head latent attention.
func Latent() kvcache.Fingerprint {
	f := plain(H100(), kvcache.BF16)
	f.Groups = []kvcache.Group{{Kind: kvcache.GroupLatent, Layers: []int{0, 1, 2, 3}, Heads: 1, KeyDim: 576}}
	return f
}

// plain gives a cache of an encoding without scales.
func plain(f kvcache.Fingerprint, d kvcache.DType) kvcache.Fingerprint {
	f.Storage.DType, f.Storage.Scales = d, kvcache.Scales{Kind: kvcache.ScaleNone}
	return f
}

// with gives a changed copy; what it changes of slices it must replace.
func with(f kvcache.Fingerprint, change func(*kvcache.Fingerprint)) kvcache.Fingerprint {
	change(&f)
	return f
}
