package main

import (
	"flag"
	"fmt"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// formatFlags adds the flags of the KV cache's format. What is given goes before
// what the preset has. The result reads them for a model, after they were parsed;
// its errors name the flag that has to change.
func formatFlags(f *flag.FlagSet) func(model string) (refmodel.Format, error) {
	preset := f.String("preset", "default", "format of the KV cache, which the flags after it change: one of "+strings.Join(refmodel.FormatNames(), ", "))
	dtype := f.String("kv-dtype", "", "encoding of KV elements: "+list(refmodel.DTypes())+`; "auto" is bf16, "fp8" what the preset's accelerator has`)
	scales := f.String("kv-scales", "", "factors of fp8 elements: "+list(refmodel.ScaleKinds()))
	order := f.String("kv-order", "", "order of the cache's indices: "+list(kvcache.Orders()))
	packing := f.String("kv-packing", "", "how K and V lie in a page: "+list(kvcache.Packings()))
	block := f.Int("block-size", 0, "tokens a KV block")
	kernel := f.Int("kernel-block", 0, "tokens of a block of the attention kernel; divides the block size; 0 for the block size")
	padding := f.Int("kv-padding", 0, "unused bytes at the end of a page, a multiple of 16")
	tensor := f.Int("tensor-parallel", 0, "ranks over which heads and weights are divided; each is a process if there are several")
	return func(model string) (refmodel.Format, error) {
		out, err := refmodel.LookupFormat(*preset)
		if err != nil {
			return out, fmt.Errorf("--preset %q is none of %s", *preset, list(refmodel.FormatNames()))
		}
		m, err := refmodel.Lookup(model)
		if err != nil {
			return out, fmt.Errorf("--model: %w", err)
		}
		for name, set := range map[string]func(){
			"kv-scales":       func() { out.Scales = kvcache.ScaleKind(*scales) },
			"kv-order":        func() { out.Order = kvcache.Order(*order) },
			"kv-packing":      func() { out.Packing = kvcache.Packing(*packing) },
			"block-size":      func() { out.BlockSize = *block },
			"kernel-block":    func() { out.KernelBlock = *kernel },
			"kv-padding":      func() { out.Padding = *padding },
			"tensor-parallel": func() { out.Tensor = *tensor },
		} {
			if given(f, name) {
				set()
			}
		}
		if given(f, "kv-dtype") {
			out.DType = dtypeOf(*dtype, *preset)
			if !out.DType.FP8() && !given(f, "kv-scales") {
				out.Scales = kvcache.ScaleNone // those of the preset belong to its encoding
			}
		}
		return out, out.Check(m)
	}
}

func given(f *flag.FlagSet, name string) bool {
	found := false
	f.Visit(func(x *flag.Flag) { found = found || x.Name == name })
	return found
}

// dtypeOf gives the encoding that a flag's value means.
func dtypeOf(value, preset string) kvcache.DType {
	switch value {
	case "auto":
		return kvcache.BF16
	case "fp8":
		return refmodel.VendorFP8(preset)
	}
	return kvcache.DType(value)
}

func list[T ~string](names []T) string {
	var b strings.Builder
	for i, n := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(n))
	}
	return b.String()
}
