package formats

import (
	"fmt"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// Format is a named way to keep KV, and to divide an engine.
type Format struct {
	Name string
	refmodel.Format
	Replicas int // data-parallel
}

// Set is formats for models of one shape. Every format of a set is paired with
// every other and itself.
type Set struct {
	Name     string
	Seeded   string // model whose tokens depend on every bit of what is kept
	Reciting string // model whose tokens are known whatever elements are rounded to; "" where no pair needs it
	Formats  []Format
}

// variant gives a format under another name, changed.
func variant(preset, name string, change func(f *Format)) Format {
	base, err := refmodel.LookupFormat(preset)
	if err != nil {
		panic(fmt.Sprintf("formats: %v", err)) // the presets are compiled in
	}
	f := Format{Name: name, Format: base, Replicas: 1}
	if change != nil {
		change(&f)
	}
	return f
}

// plain is a format of the default preset's values.
func plain(name string, order kvcache.Order, packing kvcache.Packing, block int, change func(f *Format)) Format {
	return variant("default", name, func(f *Format) {
		f.Order, f.Packing, f.BlockSize = order, packing, block
		if change != nil {
			change(f)
		}
	})
}

func encoded(name string, d kvcache.DType, s kvcache.ScaleKind, order kvcache.Order, packing kvcache.Packing, block, tensor int) Format {
	return plain(name, order, packing, block, func(f *Format) { f.DType, f.Scales, f.Tensor = d, s, tensor })
}

func tensor(n int) func(*Format)   { return func(f *Format) { f.Tensor = n } }
func replicas(n int) func(*Format) { return func(f *Format) { f.Replicas = n } }

// Names of the pair that a fleet of both vendors has when it is told nothing.
const (
	DefaultSet     = "heads-2"
	DefaultPrefill = "h100"
	DefaultDecode  = "mi300x"
)

// Sets gives the catalogue, made anew on each call.
func Sets() []Set {
	return []Set{
		{Name: DefaultSet, Seeded: "moai/seeded", Reciting: "moai/reciting-near", Formats: append(layouts(), encodings()...)},
		{Name: "heads-8", Seeded: "moai/seeded-heads", Formats: []Format{
			plain("bf16", kvcache.OrderLBHNC, kvcache.PackingPacked, 64, nil),
			plain("bf16-x-tp2", kvcache.OrderLBHNC, kvcache.PackingX, 16, tensor(2)),
			plain("bf16-tp4", kvcache.OrderLBNHC, kvcache.PackingApart, 32, tensor(4)),
			variant("h100", "h100-tp4", tensor(4)),
			variant("mi300x", "mi300x", nil),
			variant("mi300x", "mi300x-tp2", tensor(2)),
		}},
		{Name: "latent", Seeded: "moai/latent", Formats: []Format{
			plain("bf16", kvcache.OrderLBHNC, kvcache.PackingPacked, 64, nil),
			plain("bf16-tp2", kvcache.OrderLBNHC, kvcache.PackingPacked, 16, tensor(2)),
			plain("bf16-tp4", kvcache.OrderBLHNC, kvcache.PackingPacked, 32, func(f *Format) { f.Tensor, f.Padding = 4, 64 }),
			variant("h100", "h100-tp4", tensor(4)),
			variant("mi300x", "mi300x", nil),
			variant("mi300x", "mi300x-tp2", tensor(2)),
		}},
		{Name: "experts", Seeded: "moai/moe", Formats: []Format{
			variant("h100", "h100", nil),
			variant("h100", "h100-tp2", tensor(2)),
			variant("mi300x", "mi300x", nil),
			variant("mi300x", "mi300x-tp4", tensor(4)),
		}},
	}
}

// layouts keep bf16 in each order and packing, in blocks, kernel blocks, padding,
// ranks and replicas of all sorts. With 4 ranks each of the 2 heads is kept twice.
func layouts() []Format {
	return []Format{
		plain("bf16", kvcache.OrderLBHNC, kvcache.PackingPacked, 64, nil),
		plain("bf16-token-major", kvcache.OrderLBNHC, kvcache.PackingPacked, 16, nil),
		plain("bf16-apart", kvcache.OrderLHBNC, kvcache.PackingApart, 32, nil),
		plain("bf16-x", kvcache.OrderBLHNC, kvcache.PackingX, 16, nil),
		plain("bf16-apart-padded", kvcache.OrderBLNHC, kvcache.PackingApart, 16, func(f *Format) { f.Padding = 64 }),
		plain("bf16-amx", kvcache.OrderBHLNC, kvcache.PackingCPUAMX, 32, nil),
		plain("bf16-vec-single", kvcache.OrderLBHNC, kvcache.PackingCPUVec, 1, nil),
		plain("bf16-vec16", kvcache.OrderLHBNC, kvcache.PackingCPUVec16, 48, nil),
		plain("bf16-kernel-16", kvcache.OrderLBHNC, kvcache.PackingPacked, 64, func(f *Format) { f.KernelBlock = 16 }),
		plain("bf16-x-kernel-32", kvcache.OrderLBHNC, kvcache.PackingX, 64, func(f *Format) { f.KernelBlock, f.Padding = 32, 32 }),
		plain("bf16-wide-padded", kvcache.OrderLBNHC, kvcache.PackingPacked, 128, func(f *Format) { f.Padding = 4096 }),
		plain("bf16-tp2", kvcache.OrderLBHNC, kvcache.PackingPacked, 64, tensor(2)),
		plain("bf16-tp4", kvcache.OrderLBNHC, kvcache.PackingPacked, 16, tensor(4)),
		plain("bf16-dp2", kvcache.OrderLBHNC, kvcache.PackingPacked, 64, replicas(2)),
		plain("bf16-shuffled", kvcache.OrderLBHNC, kvcache.PackingShuffled, 16, nil),
	}
}

// encodings keep other elements, in the presets of accelerators above all.
func encodings() []Format {
	none, head := kvcache.ScaleNone, kvcache.ScaleHead
	return []Format{
		encoded("fp32", kvcache.FP32, none, kvcache.OrderBHLNC, kvcache.PackingPacked, 32, 1),
		encoded("fp16", kvcache.FP16, none, kvcache.OrderBLNHC, kvcache.PackingPacked, 16, 1),
		encoded("fn", kvcache.FP8E4M3FN, none, kvcache.OrderLBNHC, kvcache.PackingPacked, 16, 1),
		encoded("fnuz", kvcache.FP8E4M3FNUZ, none, kvcache.OrderLBHNC, kvcache.PackingApart, 64, 1),
		encoded("fn-by-head-tp2", kvcache.FP8E4M3FN, head, kvcache.OrderLBHNC, kvcache.PackingX, 32, 2),
		encoded("fnuz-by-head", kvcache.FP8E4M3FNUZ, head, kvcache.OrderLBNHC, kvcache.PackingPacked, 16, 1),
		variant("h100", DefaultPrefill, nil),
		variant("h100", "h100-tp2", tensor(2)),
		variant("h100", "h100-tp4", tensor(4)),
		variant("h100", "h100-dp2", replicas(2)),
		variant("mi300x", DefaultDecode, nil),
		variant("mi300x", "mi300x-tp2", tensor(2)),
		variant("mi300x", "mi300x-tp4", tensor(4)),
		variant("mi300x", "mi300x-dp2", replicas(2)),
	}
}
