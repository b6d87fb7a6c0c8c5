package transformer

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache/element"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// encodings is every encoding with every kind of factors.
func encodings() []refmodel.Format {
	var out []refmodel.Format
	for _, d := range refmodel.DTypes() {
		for _, s := range refmodel.ScaleKinds() {
			if s == kvcache.ScaleNone || d.FP8() {
				f := refmodel.DefaultFormat()
				f.DType, f.Scales = d, s
				out = append(out, f)
			}
		}
	}
	return out
}

// smallLatent is small with latent attention.
func smallLatent() refmodel.Model {
	m := small
	m.Name = "small-latent"
	m.Config.Windows = []int{0, 0, 0, 0}
	m.Config.KVHeads, m.Config.Latent = 1, refmodel.Latent{Dim: 16, Rope: 8}
	return m
}

// Where elements lie cannot change a bit: order, packing, blocks, kernel blocks,
// padding and ranks.
func TestPlaceOfElementsDoesNotChangeABit(t *testing.T) {
	for _, model := range []refmodel.Model{small, smallLatent()} {
		p := prompt(7, 70)
		for _, base := range encodings() {
			fp, err := model.Fingerprint(1, base)
			if err != nil {
				t.Fatal(err)
			}
			tab, blocks := tablesFor(&fp, len(p))
			want := newRanks(t, model, base, 1, blocks).logits(p, tab, 2)
			t.Run(fmt.Sprintf("%s/%s/%s", model.Name, base.DType, base.Scales), func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					f := drawFormat(t, model, base)
					fp, err := model.Fingerprint(1, f)
					if err != nil {
						t.Fatal(err)
					}
					tab, blocks := tablesFor(&fp, len(p))
					got := newRanks(t, model, f, 1, blocks).logits(p, tab, 2)
					for i := range want {
						if !equalBits(got[i], want[i]) {
							t.Fatalf("%+v: step %d differs", f, i)
						}
					}
				})
			})
		}
	}
}

// Pages have the form that kvcache says, whatever the order in memory, and elements
// are what the codecs of conversions make of them.
func TestPagesAreAsTheFormatSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := rapid.SampledFrom([]refmodel.Model{small, smallLatent()}).Draw(t, "model")
		f := drawFormat(t, model, rapid.SampledFrom(encodings()).Draw(t, "encoding"))
		fp, err := model.Fingerprint(1, f)
		if err != nil {
			t.Fatal(err)
		}
		rank := rapid.IntRange(0, f.Tensor-1).Draw(t, "rank")
		m, err := New(model, 1, rank, f.Tensor)
		if err != nil {
			t.Fatal(err)
		}
		const blocks = 3
		cache, err := m.NewCache(fp, 2*blocks)
		if err != nil {
			t.Fatal(err)
		}
		// Every element of every page has a value of its own.
		value := func(layer, pos int, part kvcache.Part, i int) float32 {
			return float32(math.Sin(float64(((layer*2+int(part))*blocks*f.BlockSize+pos)*400 + i)))
		}
		g := fp.Groups[0]
		heads, dims := fp.RankHeads(0), []int{g.KeyDim, g.ValueDim}
		tab := [][]int{{2, 0, 1}, {4, 5, 3}}
		for layer := range model.Config.Layers {
			for pos := range blocks * f.BlockSize {
				var x [2][]float32
				for part := range x {
					for i := range heads * dims[part] {
						x[part] = append(x[part], value(layer, pos, kvcache.Part(part), i))
					}
				}
				cache.write(layer, tab, pos, x[0], x[1])
			}
		}
		slot, block := rapid.IntRange(0, len(g.Layers)-1).Draw(t, "slot"), rapid.IntRange(0, blocks-1).Draw(t, "block")
		layer := g.Layers[slot]
		page := make([]byte, fp.PageBytes(0))
		cache.ReadPage(0, slot, tab[0][block], page)
		factors := model.Factors(1, f.Scales)
		for token := range f.BlockSize {
			for part := range dims {
				for h := range heads {
					if dims[part] == 0 {
						continue
					}
					factor := factors.Of(layer, kvcache.Part(part), fp.FirstHead(0, rank)+h)
					if fp.Storage.Scales.Doubled {
						factor *= 2
					}
					for d := range dims[part] {
						x := value(layer, block*f.BlockSize+token, kvcache.Part(part), h*dims[part]+d)
						want, _ := element.Encode(f.DType, x/factor)
						got, at := uint32(0), fp.At(0, h, token, kvcache.Part(part), d)
						for i := range f.DType.Size() {
							got |= uint32(page[int(at)+i]) << (8 * i)
						}
						if got != want {
							t.Fatalf("%+v: head %d token %d part %d dim %d is %#x, want %#x", f, h, token, part, d, got, want)
						}
					}
				}
			}
		}
		thereAndBack(t, m, &fp, page, slot)
	})
}

// thereAndBack writes a page to a cache, and reads it, and its neighbours.
func thereAndBack(t *rapid.T, m *Model, fp *kvcache.Fingerprint, page []byte, slot int) {
	cache, err := m.NewCache(*fp, 3)
	if err != nil {
		t.Fatal(err)
	}
	src := append([]byte{}, page...)
	for i := len(src) - fp.Storage.Padding; i < len(src); i++ {
		src[i] = 0xff
	}
	cache.WritePage(0, slot, 1, src)
	for other := range fp.Groups[0].Layers {
		for block := range 3 {
			got := make([]byte, len(page))
			cache.ReadPage(0, other, block, got)
			want := string(page)
			if other != slot || block != 1 {
				want = string(make([]byte, len(page)))
			}
			if string(got) != want {
				t.Fatalf("%+v: page %d of block %d is wrong after a write to %d of 1", fp.Storage, other, block, slot)
			}
		}
	}
}

// The order in memory is the one that is named.
func TestOrderInMemory(t *testing.T) {
	const blocks = 5
	for order, want := range map[kvcache.Order]struct{ layer, block, head, token int }{
		// in elements of 2 bytes, of 2 heads, 16 tokens, 32 elements a head and token; 2 layers, 5 blocks
		kvcache.OrderLBHNC: {blocks * 1024, 1024, 512, 32},
		kvcache.OrderLBNHC: {blocks * 1024, 1024, 32, 64},
		kvcache.OrderLHBNC: {2 * blocks * 512, 512, blocks * 512, 32},
		kvcache.OrderBLHNC: {1024, 2 * 1024, 512, 32},
		kvcache.OrderBLNHC: {1024, 2 * 1024, 32, 64},
		kvcache.OrderBHLNC: {512, 2 * 2 * 512, 2 * 512, 32},
	} {
		f := formatWith(16)
		f.Order = order
		r := rigOf(t, small, 1)
		c := r.cacheOf(f, blocks)
		k := c.mem.part[kvcache.Key]
		if got := [4]int{c.mem.slot / 2, c.mem.block / 2, k.head[1] / 2, k.token[1] / 2}; got != [4]int{want.layer, want.block, want.head, want.token} {
			t.Errorf("%s: strides of layer, block, head and token are %v, want %v", order, got, want)
		}
		if len(c.data) != 2*2*blocks*1024 {
			t.Errorf("%s: the memory has %d bytes", order, len(c.data))
		}
	}
}

// The presets of accelerators keep the same values: a scale twice as large makes up for
// elements half as large.
func TestAcceleratorsKeepTheSameValues(t *testing.T) {
	for _, name := range refmodel.Names() {
		model, err := refmodel.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		p := prompt(2, 150)
		var want [][]float32
		for i, preset := range []string{"h100", "mi300x", "default"} {
			f, err := refmodel.LookupFormat(preset)
			if err != nil {
				t.Fatal(err)
			}
			fp, err := model.Fingerprint(1, f)
			if err != nil {
				t.Fatal(err)
			}
			tab, blocks := tablesFor(&fp, len(p))
			got := newRanks(t, model, f, 1, blocks).logits(p, tab, 2)
			if i == 0 {
				want = got
			}
			if same := equalBits(got[2], want[2]); same != (preset != "default") {
				t.Errorf("%s as on %s: equal to h100 is %t", name, preset, same)
			}
		}
	}
}

// Elements of fp8 are far from the end of the range.
func TestNoElementIsClipped(t *testing.T) {
	for _, name := range refmodel.Names() {
		model, err := refmodel.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := refmodel.LookupFormat("mi300x")
		if err != nil {
			t.Fatal(err)
		}
		p := prompt(2, 400)
		fp, err := model.Fingerprint(1, f)
		if err != nil {
			t.Fatal(err)
		}
		tab, blocks := tablesFor(&fp, len(p))
		r := newRanks(t, model, f, 1, blocks)
		r.logits(p, tab, 0)
		var top float32
		for _, code := range r.caches[0].data {
			top = max(top, float32(math.Abs(float64(element.Decode(f.DType, uint32(code))))))
		}
		t.Logf("%s: largest element %v", name, top)
		if top > 220 || top < 30 {
			t.Errorf("%s: the largest element is %v of 240", name, top)
		}
	}
}
