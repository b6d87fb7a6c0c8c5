package convert

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache/element"
	"pgregory.net/rapid"
)

// base is a fingerprint without storage and groups.
func base(tensor int) kvcache.Fingerprint {
	return kvcache.Fingerprint{Version: kvcache.Version, Model: kvcache.Model{Config: "c", Weights: "w", Tokenizer: "t"},
		Engine: kvcache.Engine{Family: "e", Release: "0"}, Ranks: kvcache.Ranks{Tensor: tensor, Pipeline: 1}}
}

// storage is plain: bf16, packed, head-major.
func storage(block int) kvcache.Storage {
	return kvcache.Storage{DType: kvcache.BF16, Scales: kvcache.Scales{Kind: kvcache.ScaleNone}, Order: kvcache.OrderLBHNC,
		Packing: kvcache.PackingPacked, BlockSize: block, KernelBlock: block}
}

// format is an element encoding with its scales.
type format struct {
	dtype  kvcache.DType
	scales kvcache.Scales
}

var (
	none    = kvcache.Scales{Kind: kvcache.ScaleNone}
	tensor  = kvcache.Scales{Kind: kvcache.ScaleTensor, Hash: "s"}
	doubled = kvcache.Scales{Kind: kvcache.ScaleTensor, Hash: "s", Doubled: true}
)

// exactPairs keep every value. reversible ones keep every code too, there and back.
var exactPairs = []struct {
	from, to   format
	reversible bool
}{
	{format{kvcache.BF16, none}, format{kvcache.BF16, none}, true},
	{format{kvcache.FP16, none}, format{kvcache.FP32, none}, true},
	{format{kvcache.BF16, none}, format{kvcache.FP32, none}, true},
	{format{kvcache.FP8E4M3FN, none}, format{kvcache.BF16, none}, true},
	{format{kvcache.FP8E4M3FNUZ, none}, format{kvcache.FP16, none}, true},
	{format{kvcache.FP8E4M3FN, none}, format{kvcache.FP32, none}, true},
	{format{kvcache.FP8E4M3FN, tensor}, format{kvcache.FP8E4M3FNUZ, doubled}, false},
	{format{kvcache.FP8E5M2, tensor}, format{kvcache.FP8E5M2, tensor}, true},
}

var lossyPairs = []struct{ from, to format }{
	{format{kvcache.FP8E4M3FN, none}, format{kvcache.FP8E4M3FNUZ, none}},
	{format{kvcache.FP8E4M3FNUZ, none}, format{kvcache.FP8E4M3FN, none}},
	{format{kvcache.FP8E4M3FNUZ, doubled}, format{kvcache.FP8E4M3FN, tensor}},
	{format{kvcache.FP32, none}, format{kvcache.BF16, none}},
	{format{kvcache.BF16, none}, format{kvcache.FP8E4M3FN, none}},
	{format{kvcache.FP32, none}, format{kvcache.FP8E4M3FNUZ, none}},
	{format{kvcache.BF16, none}, format{kvcache.FP16, none}},
}

func drawStorage(t *rapid.T, name string, f format) kvcache.Storage {
	s := storage(0)
	s.DType, s.Scales = f.dtype, f.scales
	s.Order = rapid.SampledFrom(kvcache.Orders()).Draw(t, name+" order")
	s.Packing = rapid.SampledFrom(kvcache.Packings()).Draw(t, name+" packing")
	s.KernelBlock = rapid.SampledFrom([]int{1, 3, 16, 16, 32}).Draw(t, name+" kernel block")
	s.BlockSize = s.KernelBlock * rapid.IntRange(1, 3).Draw(t, name+" kernel blocks")
	s.Padding = 16 * rapid.IntRange(0, 2).Draw(t, name+" padding")
	return s
}

// drawShape gives both sides the same layers, grouped in each side's own way. A
// layer that keeps all tokens in the source may have a window in the destination
// if trim is set.
func drawShape(t *rapid.T, src, dst *kvcache.Fingerprint, trim bool) {
	src.Groups, dst.Groups = nil, nil
	heads := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "heads")
	key := rapid.SampledFrom([]int{16, 32, 5}).Draw(t, "key dim")
	value := rapid.SampledFrom([]int{16, 32, 3}).Draw(t, "value dim")
	if rapid.IntRange(0, 4).Draw(t, "latent") == 0 {
		g := kvcache.Group{Kind: kvcache.GroupLatent, Layers: []int{0, 3}, Heads: 1, KeyDim: key}
		src.Groups, dst.Groups = []kvcache.Group{g}, []kvcache.Group{g}
		return
	}
	n := rapid.IntRange(1, 4).Draw(t, "layers")
	window := rapid.IntRange(1, 60).Draw(t, "window")
	windowed := make([]bool, n)
	trimmed := make([]bool, n)
	for i := range n {
		windowed[i] = rapid.Bool().Draw(t, "windowed")
		trimmed[i] = trim && rapid.Bool().Draw(t, "trimmed")
	}
	group := func(f *kvcache.Fingerprint, sliding func(int) bool, apart bool) {
		for _, kind := range []kvcache.GroupKind{kvcache.GroupFull, kvcache.GroupSliding} {
			g := kvcache.Group{Kind: kind, Heads: heads, KeyDim: key, ValueDim: value}
			if kind == kvcache.GroupSliding {
				g.Window = window
			}
			for i := range n {
				if sliding(i) != (kind == kvcache.GroupSliding) {
					continue
				}
				if g.Layers = append(g.Layers, 2*i); apart {
					f.Groups = append(f.Groups, g)
					g.Layers = nil
				}
			}
			if len(g.Layers) > 0 {
				f.Groups = append(f.Groups, g)
			}
		}
	}
	group(src, func(i int) bool { return windowed[i] }, rapid.Bool().Draw(t, "source layers apart"))
	group(dst, func(i int) bool { return windowed[i] || trimmed[i] }, rapid.Bool().Draw(t, "destination layers apart"))
}

// drawPair gives two valid fingerprints of one model.
func drawPair(t *rapid.T, from, to format, trim bool) (src, dst kvcache.Fingerprint) {
	src = base(rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "source ranks"))
	dst = base(rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "destination ranks"))
	drawShape(t, &src, &dst, trim)
	src.Storage, dst.Storage = drawStorage(t, "source", from), drawStorage(t, "destination", to)
	for _, f := range []*kvcache.Fingerprint{&src, &dst} {
		if f.Validate() != nil { // sizes that the packing does not allow
			f.Storage.Packing = kvcache.PackingPacked
		}
		if err := f.Validate(); err != nil {
			t.Fatal(err)
		}
	}
	return src, dst
}

// cache is a model's KV: a code for each element that the prompt has, made up from its place.
type cache struct {
	seed   uint32
	tokens int
}

// code is the content of an element, as encoded by d.
func (c cache) code(d kvcache.DType, layer, head, token, part, dim int) uint32 {
	x := c.seed
	for _, v := range []int{layer, head, token, part, dim} {
		x = (x ^ uint32(v)) * 0x9e3779b1
		x ^= x >> 15
	}
	if d == kvcache.FP32 && x%2 == 0 { // otherwise half of all would be huge or tiny
		x = x&0x807fffff | (120+x>>24%16)<<23
	}
	return x & (1<<(8*d.Size()) - 1)
}

// place is an element with its position in a rank's payload.
type place struct{ layer, head, token, part, dim int }

// each visits the elements of the prompt in a rank's payload, found by At alone.
func each(f *kvcache.Fingerprint, tokens, rank int, visit func(p place, at int64)) {
	payload, err := f.PayloadFor(tokens)
	if err != nil {
		panic(err)
	}
	for _, s := range payload.Sections {
		g := &f.Groups[s.Group]
		for b := range s.Blocks {
			for i, layer := range g.Layers {
				page := s.Offset + int64(b)*s.BlockBytes + int64(i)*f.PageBytes(s.Group)
				for n := range f.Storage.BlockSize {
					token := (s.FirstBlock+b)*f.Storage.BlockSize + n
					if token >= tokens {
						continue
					}
					for h := range f.RankHeads(s.Group) {
						for part, dims := range []int{g.KeyDim, g.ValueDim} {
							for d := range dims {
								visit(place{layer, f.FirstHead(s.Group, rank) + h, token, part, d}, page+f.At(s.Group, h, n, kvcache.Part(part), d))
							}
						}
					}
				}
			}
		}
	}
}

// firstOf is the first token of a layer in a format.
func firstOf(f *kvcache.Fingerprint, layer, tokens int) int {
	for _, g := range f.Groups {
		if slices.Contains(g.Layers, layer) && g.Kind == kvcache.GroupSliding {
			return max(0, tokens-g.Window)
		}
	}
	return 0
}

// payload writes the cache as a rank of f has it: zero where the prompt has nothing.
func (c cache) payload(f *kvcache.Fingerprint, rank int) []byte {
	p, err := f.PayloadFor(c.tokens)
	if err != nil {
		panic(err)
	}
	out := make([]byte, p.Bytes)
	each(f, c.tokens, rank, func(p place, at int64) {
		if p.token >= firstOf(f, p.layer, c.tokens) {
			store(out[at:], c.code(f.Storage.DType, p.layer, p.head, p.token, p.part, p.dim), f.Storage.DType.Size())
		}
	})
	return out
}

var errNotStored = errors.New("not stored")

// source serves payloads, and only what is stored of them if stored is not nil.
func source(payloads [][]byte, stored [][]kvcache.Range) Source {
	return func(rank int, offset int64, out []byte) error {
		if stored != nil && !slices.ContainsFunc(stored[rank], func(r kvcache.Range) bool {
			return r.Offset <= offset && offset+int64(len(out)) <= r.Offset+r.Length
		}) {
			return fmt.Errorf("rank %d, %d bytes from %d: %w", rank, len(out), offset, errNotStored)
		}
		if n := copy(out, payloads[rank][offset:]); n != len(out) {
			return fmt.Errorf("%d bytes of %d", n, len(out))
		}
		return nil
	}
}

// payloads gives what each rank stores: its own ranges; the rest is noise that
// nobody may read.
func (c cache) payloads(f *kvcache.Fingerprint) (out [][]byte, own [][]kvcache.Range) {
	for rank := range f.Ranks.Tensor {
		p, err := f.PayloadFor(c.tokens)
		if err != nil {
			panic(err)
		}
		out, own = append(out, c.payload(f, rank)), append(own, f.Own(p, rank))
	}
	return out, own
}

func mustNew(t interface{ Fatal(...any) }, src, dst kvcache.Fingerprint) *Converter {
	c, err := New(src, dst)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// want is the destination element that a source element must become.
func want(src, dst *kvcache.Fingerprint, code uint32) (uint32, element.Exactness) {
	if src.Storage.DType == dst.Storage.DType && src.Storage.Scales == dst.Storage.Scales {
		return code, element.Exact
	}
	v := element.Decode(src.Storage.DType, code)
	if dst.Storage.Scales.Doubled != src.Storage.Scales.Doubled {
		if dst.Storage.Scales.Doubled {
			v /= 2
		} else {
			v *= 2
		}
	}
	return element.Encode(dst.Storage.DType, v)
}

func eachPair(t *testing.T, check func(t *rapid.T, from, to format, exact, reversible bool)) {
	for _, p := range exactPairs {
		t.Run(fmt.Sprintf("%s to %s", p.from.dtype, p.to.dtype), rapid.MakeCheck(func(t *rapid.T) { check(t, p.from, p.to, true, p.reversible) }))
	}
	for _, p := range lossyPairs {
		t.Run(fmt.Sprintf("%s to %s, lossy", p.from.dtype, p.to.dtype), rapid.MakeCheck(func(t *rapid.T) { check(t, p.from, p.to, false, false) }))
	}
}
