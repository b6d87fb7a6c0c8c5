package kvcompat

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache/convert"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache/element"
)

// familyReference is the family of engines whose attributes fixes name; of others they name the program's own settings.
const familyReference = "reference"

// storage compares how elements are encoded and where they lie.
func (c *comparison) storage() {
	p, d := &c.p.Storage, &c.d.Storage
	if p.Packing == kvcache.PackingShuffled || d.Packing == kvcache.PackingShuffled {
		c.refuse("storage.packing", string(p.Packing), string(d.Packing), "that layout is known from source code only, no page of it was compared with hardware", c.unshuffle())
	}
	if p.Opaque() || d.Opaque() {
		c.wholePages()
		return
	}
	if c.scales() {
		c.elements()
	}
	c.places()
}

// unshuffle says how the engines get another packing.
func (c *comparison) unshuffle() string {
	if cmp.Or(c.p.Engine.Family, c.d.Engine.Family) == familyReference {
		return "Set reference.packing to another value"
	}
	return "Set VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT=0"
}

// wholePages refuses whatever differs where the content of pages is not known.
func (c *comparison) wholePages() {
	p, d := &c.p.Storage, &c.d.Storage
	what := cmp.Or(opaqueName(p), opaqueName(d))
	for _, a := range attributes(p, d) {
		if a.p != a.d {
			c.refuse(a.name, a.p, a.d, "the content of "+what+" pages is not known, so that they can only be copied whole", "Use the same kv_cache on both engines, or one whose format is known")
		}
	}
	if p.Scales.Kind == kvcache.ScaleToken && d.Scales.Kind == kvcache.ScaleToken {
		c.refuseToken()
	}
	pairs := pairLayers(c.p, c.d)
	for _, layer := range layers(c.p) {
		pair, ok := pairs[layer]
		if !ok {
			continue
		}
		if ph, dh := c.p.RankHeads(pair[0]), c.d.RankHeads(pair[1]); ph != dh && c.p.Groups[pair[0]].Heads == c.d.Groups[pair[1]].Heads {
			c.refuse("ranks.tensor", strconv.Itoa(c.p.Ranks.Tensor), strconv.Itoa(c.d.Ranks.Tensor),
				fmt.Sprintf("pages of %s cannot be split by head, and layer %d has %d heads a rank on one side, %d on the other", what, layer, ph, dh), "Set parallel.tensor to the same value on both engines")
			return
		}
	}
}

func opaqueName(s *kvcache.Storage) string {
	switch {
	case s.DType.Opaque():
		return string(s.DType)
	case !s.Packing.Known():
		return string(s.Packing)
	}
	return ""
}

type attribute struct{ name, p, d string }

// attributes gives the values of two storages by the names of attributes.
func attributes(p, d *kvcache.Storage) []attribute {
	return []attribute{
		{"storage.dtype", string(p.DType), string(d.DType)},
		{"storage.scales", describeScales(p.Scales), describeScales(d.Scales)},
		{"storage.order", string(p.Order), string(d.Order)},
		{"storage.packing", string(p.Packing), string(d.Packing)},
		{"storage.block_size", strconv.Itoa(p.BlockSize), strconv.Itoa(d.BlockSize)},
		{"storage.kernel_block", strconv.Itoa(p.KernelBlock), strconv.Itoa(d.KernelBlock)},
		{"storage.padding", strconv.Itoa(p.Padding), strconv.Itoa(d.Padding)},
	}
}

func describeScales(s kvcache.Scales) string {
	text := string(s.Kind)
	if s.Doubled {
		text += " doubled"
	}
	if s.Hash != "" {
		text += " (" + short(s.Hash) + ")"
	}
	return text
}

func describeStorage(s *kvcache.Storage) string {
	return fmt.Sprintf("%s with %s scales, %s %s, blocks of %d", s.DType, s.Scales.Kind, s.Order, s.Packing, s.BlockSize)
}

func (c *comparison) refuseToken() {
	c.refuse("storage.scales", describeScales(c.p.Storage.Scales), describeScales(c.d.Storage.Scales), "a factor for each token is kept outside the pages and would not travel",
		"Use scales of the checkpoint, or none")
}

// scales reports whether the elements can be compared at all.
func (c *comparison) scales() bool {
	p, d := &c.p.Storage, &c.d.Storage
	ps, ds := p.Scales, d.Scales
	refuse := func(why, fix string) bool {
		c.refuse("storage.scales", describeScales(ps), describeScales(ds), why, fix)
		return false
	}
	for _, s := range []*kvcache.Storage{p, d} {
		if s.Scales.Doubled && s.DType != kvcache.FP8E4M3FNUZ {
			return refuse("factors are doubled for fp8_e4m3fnuz only, not for "+string(s.DType), "Set doubled to false, or the dtype to fp8_e4m3fnuz")
		}
	}
	switch {
	case ps.Kind == kvcache.ScaleToken || ds.Kind == kvcache.ScaleToken:
		c.refuseToken()
		return false
	case p.DType.FP8() != d.DType.FP8() && (ps.Kind != kvcache.ScaleNone || ds.Kind != kvcache.ScaleNone):
		c.refuse("storage.dtype", string(p.DType), string(d.DType), "the factors of the scaled elements are not known to the daemon", c.unscale())
		return false
	case ps.Kind != ds.Kind:
		return refuse("elements are multiplied by other factors, which are not known to the daemon", "Use the checkpoint's scales on both engines, or on none")
	case ps.Hash != ds.Hash:
		return refuse("the checkpoints' factors differ, so that equal elements are unequal values", "Give both engines the same checkpoint and revision")
	}
	return true
}

// unscale says what to do about scaled fp8 elements on one side only.
func (c *comparison) unscale() string {
	off := "turn the checkpoint's scales of the fp8 engine off"
	if cmp.Or(c.p.Engine.Family, c.d.Engine.Family) == familyReference {
		off = `set reference.scales = "none" on the fp8 engine`
	}
	fix := "Use fp8 on both engines, or another dtype on both, or " + off
	if c.d.Storage.DType.FP8() { // what has no factors is still rounded
		fix += " and allow_lossy = true on the pair"
	}
	return fix
}

// elements compares encodings.
func (c *comparison) elements() {
	p, d := &c.p.Storage, &c.d.Storage
	if p.DType != d.DType && (p.DType == kvcache.FP8E5M2 || d.DType == kvcache.FP8E5M2) {
		c.refuse("storage.dtype", string(p.DType), string(d.DType), "fp8_e5m2 is only moved as it is", "Use the same kv_cache.dtype on both engines")
		return
	}
	recoder, err := element.NewRecoder(p.DType, d.DType, convert.Factor(p.Scales, d.Scales))
	if err != nil {
		c.refuse("storage.dtype", string(p.DType), string(d.DType), err.Error(), "Use the same kv_cache.dtype on both engines")
		return
	}
	class, note := loss(p, d, recoder)
	if p.DType != d.DType {
		c.convert("storage.dtype", string(p.DType), string(d.DType), class, note)
	}
	if p.Scales.Doubled != d.Scales.Doubled {
		if p.DType != d.DType {
			class, note = Exact, "the engines multiply elements by factors of which one is twice the other"
		}
		from, to := p.Scales, d.Scales
		from.Hash, to.Hash = "", "" // they are the same
		c.convert("storage.scales", describeScales(from), describeScales(to), class, note)
	}
}

// loss says what recoding does to values.
func loss(p, d *kvcache.Storage, r *element.Recoder) (Class, string) {
	from, to := p.DType, d.DType
	switch {
	case from == kvcache.FP8E4M3FNUZ && to == kvcache.FP8E4M3FN && d.Scales.Kind != kvcache.ScaleNone && p.Scales.Doubled:
		// What an engine clips to is its largest code, so that the one code without an
		// equal is one that occurs.
		return Lossy, "±240, to which fnuz engines clip, becomes 448 where it means 480; every other value is kept"
	case r.Rounds() && from.FP8():
		return Lossy, "the smallest values are rounded"
	case r.Rounds():
		return Lossy, fmt.Sprintf("values are rounded to %s, and clipped to its range", to)
	case r.Clips():
		return Guarded, fmt.Sprintf("every value in the range of %s is kept; a transfer that meets another is given up, and the prompt computed again", to)
	}
	return Exact, "every value is kept"
}

// places compares where elements lie.
func (c *comparison) places() {
	p, d := &c.p.Storage, &c.d.Storage
	notes := map[string]string{}
	if p.Order.TokenMajor() != d.Order.TokenMajor() {
		notes["storage.order"] = "heads and tokens of a page change places"
	}
	if positions(p.Packing) != positions(d.Packing) {
		notes["storage.packing"] = "K and V are interleaved differently"
	}
	if p.BlockSize != d.BlockSize {
		notes["storage.block_size"] = "tokens are cut into other blocks"
	}
	if p.KernelBlock != d.KernelBlock && (p.KernelBlock != p.BlockSize || d.KernelBlock != d.BlockSize) { // else it follows the block size
		notes["storage.kernel_block"] = "pages are cut into other kernel blocks"
	}
	if p.Padding != d.Padding {
		notes["storage.padding"] = "pages end with another number of unused bytes"
	}
	for _, a := range attributes(p, d) {
		if note, ok := notes[a.name]; ok {
			c.convert(a.name, a.p, a.d, Exact, note)
		}
	}
}

// positions names packings by what they are: two have the same positions.
func positions(p kvcache.Packing) kvcache.Packing {
	if p == kvcache.PackingCPUVec16 {
		return kvcache.PackingCPUVec
	}
	return p
}
