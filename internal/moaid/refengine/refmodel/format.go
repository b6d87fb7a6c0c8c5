package refmodel

import (
	"fmt"
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// Format is how an engine stores the KV of its model.
type Format struct {
	DType       kvcache.DType
	Scales      kvcache.ScaleKind // none, tensor or head
	Order       kvcache.Order
	Packing     kvcache.Packing
	BlockSize   int // tokens
	KernelBlock int // tokens; 0 means BlockSize
	Padding     int // bytes a page
	Tensor      int // tensor-parallel ranks
}

// formats are presets by name. Those of accelerators are what vLLM 0.33 has there
// when nothing but an fp8 KV cache is asked for: on H100 blocks of 16 tokens, LBNHC
// and e4m3fn, on MI300X blocks of 64, LBHNC and e4m3fnuz.
var formats = []struct {
	name   string
	format Format
}{
	{"default", Format{DType: kvcache.BF16, Scales: kvcache.ScaleNone, Order: kvcache.OrderLBHNC, Packing: kvcache.PackingPacked, BlockSize: 64, Tensor: 1}},
	{"h100", Format{DType: kvcache.FP8E4M3FN, Scales: kvcache.ScaleTensor, Order: kvcache.OrderLBNHC, Packing: kvcache.PackingPacked, BlockSize: 16, Tensor: 1}},
	{"mi300x", Format{DType: kvcache.FP8E4M3FNUZ, Scales: kvcache.ScaleTensor, Order: kvcache.OrderLBHNC, Packing: kvcache.PackingPacked, BlockSize: 64, Tensor: 1}},
}

// FormatNames lists the format presets.
func FormatNames() []string {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.name
	}
	return names
}

// LookupFormat finds a format preset by name.
func LookupFormat(name string) (Format, error) {
	for _, f := range formats {
		if f.name == name {
			return f.format, nil
		}
	}
	return Format{}, fmt.Errorf("the reference engine has no preset %q, only %v", name, FormatNames())
}

// DefaultFormat is the format of an engine that is told nothing.
func DefaultFormat() Format { return formats[0].format }

// VendorFP8 is the dtype that "fp8" means for a preset: that of its accelerator.
func VendorFP8(preset string) kvcache.DType {
	if i := slices.Index(FormatNames(), preset); i >= 0 && formats[i].format.DType.FP8() {
		return formats[i].format.DType
	}
	return kvcache.FP8E4M3FN
}

func (f Format) storage(m Model, seed uint64) kvcache.Storage {
	s := kvcache.Storage{DType: f.DType, Scales: kvcache.Scales{Kind: f.Scales}, Order: f.Order, Packing: f.Packing,
		BlockSize: f.BlockSize, KernelBlock: f.KernelBlock, Padding: f.Padding}
	if s.KernelBlock == 0 {
		s.KernelBlock = s.BlockSize
	}
	if f.Scales != kvcache.ScaleNone {
		s.Scales.Hash = m.Factors(seed, f.Scales).Hash()
		s.Scales.Doubled = f.DType == kvcache.FP8E4M3FNUZ
	}
	return s
}
