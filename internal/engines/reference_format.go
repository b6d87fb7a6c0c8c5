package engines

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// Values of kv_cache.dtype that stand for others.
const (
	dtypeAuto = "auto" // the preset's
	dtypeFP8  = "fp8"  // that of the preset's accelerator
)

// presetDefault is the preset of an engine that names none.
const presetDefault = "default"

var (
	// referenceBlockSizes are tokens a block.
	referenceBlockSizes = []int{16, 32, 64, 128, 256}
	referenceTensors    = []int{1, 2, 4, 8}
	referenceDTypes     = append([]string{dtypeAuto, dtypeFP8}, names(refmodel.DTypes())...)
	referenceScales     = names(refmodel.ScaleKinds())
)

// formerLayouts are names that layouts had in vLLM before.
var formerLayouts = map[string]kvcache.Order{"NHD": kvcache.OrderLBNHC, "HND": kvcache.OrderLBHNC}

// maxReferenceData bounds the replicas of one engine: each is a scheduler process
// and all tensor ranks.
const maxReferenceData = 4

// formatDefaults fills in the parts of the format that s leaves open from its
// preset. What does not fit together is left for checkFormat.
func formatDefaults(s Spec) Spec {
	def := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	def(&s.Preset, presetDefault)
	f, err := refmodel.LookupFormat(s.Preset)
	if err != nil {
		f = refmodel.DefaultFormat() // checkFormat names the preset
	}
	def(&s.KVCache.DType, dtypeAuto)
	def(&s.KVCache.Layout, string(f.Order))
	def(&s.Reference.Packing, string(f.Packing))
	scales := f.Scales
	if !dtypeOf(s).FP8() {
		scales = kvcache.ScaleNone
	}
	def(&s.Reference.Scales, string(scales))
	if s.KVCache.BlockSize == 0 {
		s.KVCache.BlockSize = f.BlockSize
		if s.Reference.KernelBlockSize == 0 {
			s.Reference.KernelBlockSize = f.KernelBlock
		}
	}
	if s.Reference.KernelBlockSize == 0 {
		s.Reference.KernelBlockSize = s.KVCache.BlockSize
	}
	if s.Reference.Padding == 0 {
		s.Reference.Padding = f.Padding
	}
	return s
}

// dtypeOf is the element encoding that kv_cache.dtype stands for.
func dtypeOf(s Spec) kvcache.DType {
	switch s.KVCache.DType {
	case "", dtypeAuto:
		f, err := refmodel.LookupFormat(s.Preset)
		if err != nil {
			f = refmodel.DefaultFormat()
		}
		return f.DType
	case dtypeFP8:
		return refmodel.VendorFP8(s.Preset)
	}
	return kvcache.DType(s.KVCache.DType)
}

// formatOf is the format of an engine of s, which has its defaults.
func formatOf(s Spec) refmodel.Format {
	return refmodel.Format{
		DType: dtypeOf(s), Scales: kvcache.ScaleKind(s.Reference.Scales), Order: kvcache.Order(s.KVCache.Layout), Packing: kvcache.Packing(s.Reference.Packing),
		BlockSize: s.KVCache.BlockSize, KernelBlock: s.Reference.KernelBlockSize, Padding: s.Reference.Padding, Tensor: s.Parallel.Tensor,
	}
}

// formatArgs are the arguments that say so. All are given, so that what an engine
// runs with is what the plan shows.
func formatArgs(s Spec) []string {
	f := formatOf(s)
	return []string{
		"--preset=" + s.Preset,
		"--kv-dtype=" + string(f.DType),
		"--kv-scales=" + string(f.Scales),
		"--kv-order=" + string(f.Order),
		"--kv-packing=" + string(f.Packing),
		"--block-size=" + strconv.Itoa(f.BlockSize),
		"--kernel-block=" + strconv.Itoa(f.KernelBlock),
		"--kv-padding=" + strconv.Itoa(f.Padding),
		"--tensor-parallel=" + strconv.Itoa(s.Parallel.Tensor),
		"--data-parallel=" + strconv.Itoa(s.Parallel.Data),
	}
}

// checkParallel lists ranks that the engine cannot have.
func checkParallel(s Spec) []Problem {
	var ps []Problem
	add := func(attribute, format string, args ...any) {
		ps = append(ps, Problem{attribute, "Parallelism not supported", fmt.Sprintf(format, args...)})
	}
	if !slices.Contains(referenceTensors, s.Parallel.Tensor) {
		add("parallel.tensor", "The reference engine divides a model over %s tensor-parallel ranks, not %d.", numbers(referenceTensors), s.Parallel.Tensor)
	}
	if s.Parallel.Data < 1 || s.Parallel.Data > maxReferenceData {
		add("parallel.data", "The reference engine has 1 to %d data-parallel replicas, not %d.", maxReferenceData, s.Parallel.Data)
	}
	if s.Parallel.Expert != 1 {
		add("parallel.expert", "The reference engine keeps all experts on every rank: parallel.expert is %d, and only 1 works.", s.Parallel.Expert)
	}
	if n := s.Parallel.Ranks(); len(ps) == 0 && len(s.GPUs) > 0 && len(s.GPUs) != n {
		ps = append(ps, Problem{"gpus", "Number of accelerators does not fit", fmt.Sprintf(
			"gpus lists %d accelerators, and the engine has %d ranks (parallel.tensor %d × parallel.data %d). List one for each rank, or leave gpus out.",
			len(s.GPUs), n, s.Parallel.Tensor, s.Parallel.Data)})
	}
	return ps
}

// checkFormat lists what is wrong with the format of s, which has its defaults.
func checkFormat(s Spec) []Problem {
	ps := oneOf(nil, "preset", s.Preset, "Unknown preset", refmodel.FormatNames())
	ps = oneOf(ps, "kv_cache.dtype", s.KVCache.DType, "KV data type not supported", referenceDTypes)
	if now, old := formerLayouts[s.KVCache.Layout]; old {
		ps = append(ps, Problem{"kv_cache.layout", "KV layout not supported", fmt.Sprintf("%s is an old name. Use %q.", s.KVCache.Layout, now)})
	} else {
		ps = oneOf(ps, "kv_cache.layout", s.KVCache.Layout, "KV layout not supported", names(kvcache.Orders()))
	}
	ps = oneOf(ps, "reference.packing", s.Reference.Packing, "KV packing not supported", names(kvcache.Packings()))
	ps = oneOf(ps, "reference.scales", s.Reference.Scales, "KV scales not supported", referenceScales)
	if !slices.Contains(referenceBlockSizes, s.KVCache.BlockSize) {
		ps = append(ps, Problem{"kv_cache.block_size", "Block size not supported", fmt.Sprintf(
			"%d tokens a block are not supported by the reference engine. Use %s.", s.KVCache.BlockSize, numbers(referenceBlockSizes))})
	}
	if len(ps) > 0 {
		return ps
	}
	m, err := refmodel.Lookup(s.Model.ID)
	if err != nil || !slices.Contains(referenceTensors, s.Parallel.Tensor) {
		return nil // reported elsewhere
	}
	if err := formatOf(s).Check(m); err != nil {
		return []Problem{problemOf(err.Error())}
	}
	return nil
}

// problemOf makes a problem of the engine's own refusal, which begins with the
// flag that has to change.
func problemOf(refusal string) Problem {
	at, text := "kv_cache", refusal
	if flag, why, ok := strings.Cut(refusal, ":"); ok {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), " ")
		if a := referenceFlags[name]; a != "" {
			at, text = a, fmt.Sprintf("%s is %s:%s", a, value, why)
		}
	}
	for _, flag := range slices.Backward(slices.Sorted(maps.Keys(referenceFlags))) { // "kv-dtype" before "kv"
		if a := referenceFlags[flag]; a != "" {
			text = strings.ReplaceAll(text, "--"+flag+" ", a+" ")
		}
	}
	text = formatWord.ReplaceAllStringFunc(text, func(m string) string {
		name, value, _ := strings.Cut(m, " ")
		return formatWords[name] + " " + value
	})
	return Problem{at, "KV format does not fit together", text + "."}
}

// formatWord finds a part of the format that the engine names without its flag, with a value: its attribute is formatWords'.
var formatWord = regexp.MustCompile(`\b(?:order|packing) [A-Za-z_0-9]+`)

var formatWords = map[string]string{"order": "kv_cache.layout", "packing": "reference.packing"}

// names gives the values of named strings.
func names[T ~string](vs []T) []string {
	out := make([]string, len(vs))
	for i, v := range vs {
		out[i] = string(v)
	}
	return out
}

// numbers writes numbers for a sentence: 1, 2 or 4.
func numbers(ns []int) string {
	out := make([]string, len(ns))
	for i, n := range ns {
		out[i] = strconv.Itoa(n)
	}
	return alternatives(out)
}
