package cases

import (
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
)

func blocks(n, kernel int) func(*kvcache.Fingerprint) {
	return func(f *kvcache.Fingerprint) { f.Storage.BlockSize, f.Storage.KernelBlock = n, kernel }
}

func ranks(n int) func(*kvcache.Fingerprint) {
	return func(f *kvcache.Fingerprint) { f.Ranks.Tensor = n }
}

func packing(p kvcache.Packing) func(*kvcache.Fingerprint) {
	return func(f *kvcache.Fingerprint) { f.Storage.Packing, f.Storage.Order = p, kvcache.OrderLBHNC }
}

func order(o kvcache.Order) func(*kvcache.Fingerprint) {
	return func(f *kvcache.Fingerprint) { f.Storage.Order = o }
}

func release(r string) func(*kvcache.Fingerprint) {
	return func(f *kvcache.Fingerprint) { f.Engine.Release = r }
}

func features(names ...string) func(*kvcache.Fingerprint) {
	return func(f *kvcache.Fingerprint) { f.Features = names }
}

// allowed are the pairs that keep every value, or every value in range.
func allowed() []Case {
	bf16 := plain(H100(), kvcache.BF16)
	head := func(f *kvcache.Fingerprint) { f.Storage.Order = kvcache.OrderLBHNC }
	full := with(Hybrid(), func(f *kvcache.Fingerprint) {
		g := f.Groups[0]
		g.Layers = []int{0, 1, 2, 3}
		f.Groups = []kvcache.Group{g}
	})
	exact, guarded, noOptions := kvcompat.Exact, kvcompat.Guarded, kvcompat.Options{}
	return []Case{
		{"equal caches", H100(), H100(), noOptions, exact, nil},
		{"other build, backend and vendor", H100(), with(H100(), func(f *kvcache.Fingerprint) { f.Engine.Release, f.Engine.Attention = "0.33.0+rocm700", "TRITON_ATTN" }), noOptions, exact, nil},
		{"H100 to MI300X", H100(), MI300X(), noOptions, exact, []string{"storage.dtype", "storage.scales", "storage.order", "storage.block_size"}},
		{"fn to fnuz without scales", plain(H100(), kvcache.FP8E4M3FN), plain(H100(), kvcache.FP8E4M3FNUZ), noOptions, guarded, []string{"storage.dtype"}},
		{"fp8 to bf16", plain(H100(), kvcache.FP8E4M3FN), bf16, noOptions, exact, []string{"storage.dtype"}},
		{"bf16 to fp32", bf16, plain(H100(), kvcache.FP32), noOptions, exact, []string{"storage.dtype"}},
		{"fnuz factors halved", MI300X(), with(MI300X(), func(f *kvcache.Fingerprint) { f.Storage.Scales.Doubled = false }), noOptions, guarded, []string{"storage.scales"}},
		{"outer order only", with(bf16, head), with(bf16, order(kvcache.OrderBLHNC)), noOptions, exact, nil},
		{"order of one head a rank", with(bf16, ranks(8)), with(with(bf16, ranks(8)), head), noOptions, exact, nil},
		{"order", bf16, with(bf16, head), noOptions, exact, []string{"storage.order"}},
		{"packed to apart", bf16, with(bf16, func(f *kvcache.Fingerprint) { f.Storage.Packing = kvcache.PackingApart }), noOptions, exact, []string{"storage.packing"}},
		{"AMX to plain vectors", with(with(bf16, packing(kvcache.PackingCPUAMX)), blocks(64, 64)), with(with(bf16, packing(kvcache.PackingCPUVec)), blocks(64, 64)), noOptions, exact, []string{"storage.packing"}},
		{"vectors of two kernels", with(bf16, packing(kvcache.PackingCPUVec)), with(bf16, packing(kvcache.PackingCPUVec16)), noOptions, exact, nil},
		{"x-packed of older ROCm", with(bf16, head), with(bf16, packing(kvcache.PackingX)), noOptions, exact, []string{"storage.packing"}},
		{"blocks", bf16, with(bf16, blocks(64, 64)), noOptions, exact, []string{"storage.block_size"}},
		{"kernel blocks of one token order", with(bf16, blocks(64, 64)), with(bf16, blocks(64, 32)), noOptions, exact, nil},
		{"kernel blocks", with(with(bf16, head), blocks(64, 64)), with(with(bf16, head), blocks(64, 32)), noOptions, exact, []string{"storage.kernel_block"}},
		{"padding", bf16, with(bf16, func(f *kvcache.Fingerprint) { f.Storage.Padding = 4096 }), noOptions, exact, []string{"storage.padding"}},
		{"ranks 4 to 2", bf16, with(bf16, ranks(2)), noOptions, exact, []string{"ranks.tensor"}},
		{"ranks 1 to 16, more than heads", with(bf16, ranks(1)), with(bf16, ranks(16)), noOptions, exact, []string{"ranks.tensor"}},
		{"latent vectors on other ranks and in other blocks", Latent(), with(with(Latent(), ranks(1)), blocks(64, 64)), noOptions, exact, []string{"storage.block_size", "ranks.tensor"}},
		{"window on decode only", full, Hybrid(), noOptions, exact, []string{"groups"}},
		{"opaque pages of equal storage", opaque("opaque:amx"), opaque("opaque:amx"), noOptions, exact, nil},
		{"records of sparse attention", sparse(), with(sparse(), ranks(2)), noOptions, exact, []string{"ranks.tensor"}},
		{"fp8_e5m2 as it is", plain(H100(), kvcache.FP8E5M2), plain(MI300X(), kvcache.FP8E5M2), noOptions, exact, []string{"storage.order", "storage.block_size"}},
		{"equal speculative methods", with(bf16, features("speculative:eagle3")), with(bf16, features("speculative:eagle3")), noOptions, exact, nil},
		{"another release that is allowed", bf16, with(bf16, release("0.33.1")), kvcompat.Options{AllowReleases: true}, exact, []string{"engine.release"}},
	}
}

func opaque(name kvcache.Packing) kvcache.Fingerprint {
	return with(plain(H100(), kvcache.BF16), func(f *kvcache.Fingerprint) { f.Storage.Packing = name })
}

// sparse is a cache of latent vectors as mixed records.
func sparse() kvcache.Fingerprint {
	return with(plain(Latent(), kvcache.FP8DSMLA), func(f *kvcache.Fingerprint) {
		g := f.Groups[0]
		g.KeyDim = 656
		f.Groups = []kvcache.Group{g}
		blocks(64, 64)(f)
	})
}

// lossy are the pairs that change values: refused unless allowed.
func lossy() []Case {
	var out []Case
	for _, c := range []Case{
		{Name: "MI300X to H100", Prefill: MI300X(), Decode: H100(), Attributes: []string{"storage.dtype", "storage.scales", "storage.order", "storage.block_size"}},
		{Name: "fnuz to fn without scales", Prefill: plain(H100(), kvcache.FP8E4M3FNUZ), Decode: plain(H100(), kvcache.FP8E4M3FN)},
		{Name: "bf16 to fp8", Prefill: plain(H100(), kvcache.BF16), Decode: plain(H100(), kvcache.FP8E4M3FN)},
		{Name: "bf16 to fp16", Prefill: plain(H100(), kvcache.BF16), Decode: plain(H100(), kvcache.FP16)},
		{Name: "fp16 to bf16", Prefill: plain(H100(), kvcache.FP16), Decode: plain(H100(), kvcache.BF16)},
		{Name: "fp32 to bf16", Prefill: plain(H100(), kvcache.FP32), Decode: plain(H100(), kvcache.BF16)},
	} {
		if c.Attributes == nil {
			c.Attributes = []string{"storage.dtype"}
		}
		yes := c
		yes.Name, yes.Options.AllowLossy, yes.Class = c.Name+", allowed", true, kvcompat.Lossy
		c.Class, c.Attributes = kvcompat.Refused, []string{"storage.dtype"}
		out = append(out, c, yes)
	}
	halved := with(MI300X(), func(f *kvcache.Fingerprint) { f.Storage.Scales.Doubled = false })
	return append(out,
		Case{"fnuz factors doubled", halved, MI300X(), kvcompat.Options{}, kvcompat.Refused, []string{"storage.scales"}},
		Case{"fnuz factors doubled, allowed", halved, MI300X(), kvcompat.Options{AllowLossy: true}, kvcompat.Lossy, []string{"storage.scales"}})
}
