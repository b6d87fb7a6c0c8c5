package main

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// formatFlags adds the flags of the KV cache's format. What is given goes before
// what the preset has. The result reads them, after they were parsed.
func formatFlags(f *flag.FlagSet) func() (refmodel.Format, error) {
	preset := f.String("preset", "default", "format of the KV cache, which other flags change: one of "+strings.Join(refmodel.FormatNames(), ", "))
	dtype := f.String("kv-dtype", "", "encoding of KV elements: "+list(dtypes)+"; auto is bf16, fp8 what the preset's accelerator has")
	scales := f.String("kv-scales", "", "factors of fp8 elements: "+list(scaleKinds)+`; if missing, and the preset has none for the encoding, "none"`)
	order := f.String("kv-order", "", "order of the cache's indices: "+list(kvcache.Orders()))
	packing := f.String("kv-packing", "", "how K and V lie in a page: "+list(kvcache.Packings()))
	block := f.Int("block-size", 0, "tokens a KV block")
	kernel := f.Int("kernel-block", 0, "tokens of a block of the attention kernel; divides the block size; 0 for the block size")
	padding := f.Int("kv-padding", 0, "unused bytes at the end of a page, a multiple of 16")
	tensor := f.Int("tensor-parallel", 0, "ranks over which heads and weights are divided, each a process if there are several")
	return func() (refmodel.Format, error) {
		out, err := refmodel.LookupFormat(*preset)
		if err != nil {
			return out, fmt.Errorf("--preset %q is none of %s", *preset, list(refmodel.FormatNames()))
		}
		given := map[string]bool{}
		f.Visit(func(x *flag.Flag) { given[x.Name] = true })
		var errs []error
		name := func(flag, value string, known []string, set func()) {
			if !given[flag] {
				return
			}
			if !slices.Contains(known, value) {
				errs = append(errs, fmt.Errorf("--%s %q is none of %s", flag, value, list(known)))
				return
			}
			set()
		}
		number := func(flag string, value, least, most int, set func()) {
			if !given[flag] {
				return
			}
			if value < least || value > most {
				errs = append(errs, fmt.Errorf("--%s %d is outside %d to %d", flag, value, least, most))
				return
			}
			set()
		}
		name("kv-dtype", *dtype, texts(dtypes), func() {
			out.DType = dtypeOf(*dtype, *preset)
			if !out.DType.FP8() {
				out.Scales = kvcache.ScaleNone
			}
		})
		name("kv-scales", *scales, texts(scaleKinds), func() { out.Scales = kvcache.ScaleKind(*scales) })
		name("kv-order", *order, texts(kvcache.Orders()), func() { out.Order = kvcache.Order(*order) })
		name("kv-packing", *packing, texts(kvcache.Packings()), func() { out.Packing = kvcache.Packing(*packing) })
		number("block-size", *block, 1, 4096, func() { out.BlockSize = *block })
		number("kernel-block", *kernel, 0, 4096, func() { out.KernelBlock = *kernel })
		number("kv-padding", *padding, 0, 1<<20, func() { out.Padding = *padding })
		number("tensor-parallel", *tensor, 1, 64, func() { out.Tensor = *tensor })
		if len(errs) > 0 {
			return out, errs[0]
		}
		return out, together(out)
	}
}

// together reports flags that do not go with each other.
func together(f refmodel.Format) error {
	switch {
	case f.KernelBlock > 0 && f.BlockSize%f.KernelBlock != 0:
		return fmt.Errorf("--kernel-block %d does not divide --block-size %d", f.KernelBlock, f.BlockSize)
	case f.Padding%16 != 0:
		return fmt.Errorf("--kv-padding %d is no multiple of 16", f.Padding)
	case f.Scales != kvcache.ScaleNone && !f.DType.FP8():
		return fmt.Errorf("--kv-scales %s is for fp8 elements, and --kv-dtype is %s", f.Scales, f.DType)
	}
	return nil
}

// dtypes and scaleKinds are what the reference engine can keep.
var (
	dtypes     = []kvcache.DType{"auto", kvcache.BF16, kvcache.FP16, kvcache.FP32, "fp8", kvcache.FP8E4M3FN, kvcache.FP8E4M3FNUZ, kvcache.FP8E5M2}
	scaleKinds = []kvcache.ScaleKind{kvcache.ScaleNone, kvcache.ScaleTensor, kvcache.ScaleHead}
)

func dtypeOf(flag, preset string) kvcache.DType {
	switch flag {
	case "auto":
		return kvcache.BF16
	case "fp8":
		return refmodel.VendorFP8(preset)
	}
	return kvcache.DType(flag)
}

func texts[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

func list[T ~string](l []T) string { return strings.Join(texts(l), ", ") }
