package cases

import (
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
)

// everything is allowed in cases that no option helps.
var everything = kvcompat.Options{AllowLossy: true, AllowReleases: true}

func no(name string, p, d kvcache.Fingerprint, attributes ...string) Case {
	return Case{name, p, d, everything, kvcompat.Refused, attributes}
}

// refusedIdentity are pairs whose caches do not mean the same.
func refusedIdentity() []Case {
	a := plain(H100(), kvcache.BF16)
	return []Case{
		no("other config", a, with(a, func(f *kvcache.Fingerprint) { f.Model.Config = "other" }), "model.config"),
		no("other weights", a, with(a, func(f *kvcache.Fingerprint) { f.Model.Weights = "other" }), "model.weights"),
		no("other tokenizer", a, with(a, func(f *kvcache.Fingerprint) { f.Model.Tokenizer = "other" }), "model.tokenizer"),
		no("no chat template", a, with(a, func(f *kvcache.Fingerprint) { f.Model.ChatTemplate = "" }), "model.chat_template"),
		no("another model altogether", a, with(Latent(), func(f *kvcache.Fingerprint) { f.Model = kvcache.Model{Config: "o", Weights: "o", Tokenizer: "o"} }),
			"model.config", "model.weights", "model.tokenizer", "model.chat_template", "groups"),
		no("another engine", a, with(a, func(f *kvcache.Fingerprint) { f.Engine.Family, f.Engine.Release = "reference", "1" }), "engine.family"),
		{"another release", a, with(a, release("0.32.0")), kvcompat.Options{AllowLossy: true}, kvcompat.Refused, []string{"engine.release"}},
		no("ROCM_ATTN on prefill", with(a, attention("ROCM_ATTN")), a, "engine.attention"),
		no("ROCM_ATTN on decode", a, with(a, attention("ROCM_ATTN")), "engine.attention"),
		no("encoder-decoder model", with(a, features("encoder_decoder")), with(a, features("encoder_decoder")), "features"),
		no("state-space layers", with(a, features("state_space")), with(a, features("state_space")), "features"),
		no("expandable segments on decode", a, with(a, features("expandable_segments")), "features"),
		no("expandable segments on both", with(a, features("expandable_segments")), with(a, features("expandable_segments")), "features"),
		no("speculation on one side", with(a, features("speculative:eagle3")), a, "features"),
		no("two speculative methods", with(a, features("speculative:eagle3")), with(a, features("speculative:mtp")), "features"),
		no("a gate and a difference", with(a, features("state_space")), with(a, features("speculative:mtp")), "features", "features"),
	}
}

func attention(name string) func(*kvcache.Fingerprint) {
	return func(f *kvcache.Fingerprint) { f.Engine.Attention = name }
}

func scales(s kvcache.Scales) func(*kvcache.Fingerprint) {
	return func(f *kvcache.Fingerprint) { f.Storage.Scales = s }
}

// refusedStorage are pairs whose elements cannot be told or placed.
func refusedStorage() []Case {
	a := H100()
	bf16 := plain(a, kvcache.BF16)
	shuffled := with(bf16, packing(kvcache.PackingShuffled))
	return []Case{
		no("scaled fp8 to bf16", a, bf16, "storage.dtype"),
		no("bf16 to scaled fp8", bf16, a, "storage.dtype"),
		no("scaled fp8 to fp8 without scales", a, plain(a, kvcache.FP8E4M3FN), "storage.scales"),
		no("raw fp8 across vendors, one with scales", plain(a, kvcache.FP8E4M3FN), MI300X(), "storage.scales"),
		no("factors of another checkpoint", a, with(MI300X(), scales(kvcache.Scales{Kind: kvcache.ScaleTensor, Hash: "other", Doubled: true})), "storage.scales"),
		no("factors by head", a, with(a, scales(kvcache.Scales{Kind: kvcache.ScaleHead, Hash: "factors"})), "storage.scales"),
		no("factors by token", with(a, scales(kvcache.Scales{Kind: kvcache.ScaleToken})), with(a, scales(kvcache.Scales{Kind: kvcache.ScaleToken})), "storage.scales"),
		no("doubled factors of fn", with(a, scales(kvcache.Scales{Kind: kvcache.ScaleTensor, Hash: "factors", Doubled: true})), a, "storage.scales"),
		no("fp8_e5m2 to e4m3fn", plain(a, kvcache.FP8E5M2), plain(a, kvcache.FP8E4M3FN), "storage.dtype"),
		no("fp8_e5m2 to bf16", plain(a, kvcache.FP8E5M2), bf16, "storage.dtype"),
		no("bf16 to fp8_e5m2", bf16, plain(a, kvcache.FP8E5M2), "storage.dtype"),
		no("fp8_ds_mla to fp8", sparse(), with(plain(sparse(), kvcache.FP8E4M3FN), func(*kvcache.Fingerprint) {}), "storage.dtype"),
		no("fp8_ds_mla in other blocks", sparse(), with(sparse(), blocks(128, 128)), "storage.block_size", "storage.kernel_block"),
		no("nvfp4 to bf16", plain(a, kvcache.NVFP4), bf16, "storage.dtype"),
		no("opaque packing to packed", opaque("opaque:amx"), bf16, "storage.packing"),
		no("two opaque packings", opaque("opaque:amx"), opaque("opaque:vec"), "storage.packing"),
		no("opaque pages on other ranks", opaque("opaque:amx"), with(opaque("opaque:amx"), ranks(2)), "ranks.tensor"),
		no("shuffled on prefill", shuffled, bf16, "storage.packing"),
		no("shuffled on both", shuffled, shuffled, "storage.packing"),
	}
}

// refusedShape are pairs of which one has not what the other needs.
func refusedShape() []Case {
	a := Hybrid()
	stages := func(f *kvcache.Fingerprint) { f.Ranks.Pipeline = 2 }
	groups := func(change func([]kvcache.Group)) func(*kvcache.Fingerprint) {
		return func(f *kvcache.Fingerprint) {
			f.Groups = append([]kvcache.Group(nil), f.Groups...)
			change(f.Groups)
		}
	}
	return []Case{
		no("pipeline on prefill", with(a, stages), a, "ranks.pipeline"),
		no("pipeline on both", with(a, stages), with(a, stages), "ranks.pipeline"),
		no("window on prefill only", a, with(a, func(f *kvcache.Fingerprint) {
			g := f.Groups[0]
			g.Layers = []int{0, 1, 2, 3}
			f.Groups = []kvcache.Group{g}
		}), "groups"),
		no("other windows", a, with(a, groups(func(g []kvcache.Group) { g[1].Window = 64 })), "groups"),
		no("a layer more", a, with(a, groups(func(g []kvcache.Group) { g[0].Layers = []int{1, 3, 4} })), "groups"),
		no("other heads", a, with(a, groups(func(g []kvcache.Group) { g[0].Heads = 4 })), "groups"),
		no("other dimensions", a, with(a, groups(func(g []kvcache.Group) { g[1].ValueDim = 128 })), "groups"),
		no("latent vectors on one side", Latent(), with(Latent(), groups(func(g []kvcache.Group) {
			g[0].Kind, g[0].KeyDim, g[0].ValueDim = kvcache.GroupFull, 288, 288
		})), "groups"),
	}
}
