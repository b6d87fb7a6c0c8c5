package transformer

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// failer is what tests, properties and benchmarks share.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// rig runs one model over caches with identity block tables.
type rig struct {
	t     failer
	model refmodel.Model
	m     *Model
}

func newRig(t failer, name string, seed uint64) *rig {
	t.Helper()
	if name == small.Name {
		return rigOf(t, small, seed)
	}
	model, err := refmodel.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return rigOf(t, model, seed)
}

// small has every part of a preset at a tenth of the time.
var small = refmodel.Model{Name: "small", Weights: refmodel.Seeded, Config: refmodel.Config{
	Layers: 4, Hidden: 40, Heads: 4, KVHeads: 2, HeadDim: 16, FFN: 40, Windows: []int{0, 24, 0, 24},
	Lags: []int{}, Vocab: 258, RopeBase: 10000, MaxPosition: 512,
}}

func rigOf(t failer, model refmodel.Model, seed uint64) *rig {
	t.Helper()
	m, err := New(model, seed, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, model: model, m: m}
}

func (r *rig) cache(block, blocks int) *Cache { return r.cacheOf(formatWith(block), blocks) }

func (r *rig) cacheOf(f refmodel.Format, blocks int) *Cache {
	r.t.Helper()
	fp, err := r.model.Fingerprint(1, f)
	if err != nil {
		r.t.Fatal(err)
	}
	c, err := r.m.NewCache(fp, blocks)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// tables gives two groups their own blocks from first on.
func tables(first, perGroup int) [][]int {
	out := make([][]int, 2)
	for g := range out {
		for i := range perGroup {
			out[g] = append(out[g], first+g*perGroup+i)
		}
	}
	return out
}

func (r *rig) forward(c *Cache, chunks []Chunk) [][]float32 {
	out, err := r.m.Forward(c, chunks, Alone)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func argmax(v []float32) int {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	return best
}

func prompt(seed uint64, n int) []int {
	rng := &random{state: seed}
	out := make([]int, n)
	for i := range out {
		out[i] = int(rng.next() % 256)
	}
	return out
}

// run feeds a prompt in chunks and then generates; it returns all logits.
func (r *rig) run(p []int, chunk, block, steps int) (tokens []int, logits [][]float32) {
	per := (len(p)+steps)/block + 1
	c, tab := r.cache(block, 2*per), tables(0, per)
	for at := 0; at < len(p); at += chunk {
		end := min(len(p), at+chunk)
		if lo := r.forward(c, []Chunk{{Tokens: p[at:end], Start: at, Tables: tab, Logits: end == len(p)}}); end == len(p) {
			logits = append(logits, lo[0])
		}
	}
	tokens = append(tokens, argmax(logits[0]))
	for len(tokens) < steps {
		lo := r.forward(c, []Chunk{{Tokens: tokens[len(tokens)-1:], Start: len(p) + len(tokens) - 1, Tables: tab, Logits: true}})
		logits = append(logits, lo[0])
		tokens = append(tokens, argmax(lo[0]))
	}
	return tokens, logits
}

func equalBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

func TestChunksAndBlocksDoNotChangeABit(t *testing.T) {
	r := newRig(t, small.Name, 1)
	rapid.Check(t, func(t *rapid.T) {
		p := prompt(rapid.Uint64().Draw(t, "prompt"), rapid.IntRange(1, 150).Draw(t, "tokens"))
		_, want := r.run(p, len(p), 64, 2)
		_, got := r.run(p, rapid.IntRange(1, 100).Draw(t, "chunk"), rapid.SampledFrom([]int{1, 16, 48, 64, 128}).Draw(t, "block"), 2)
		for i := range want {
			if !equalBits(want[i], got[i]) {
				t.Fatalf("logits of step %d differ", i)
			}
		}
	})
}

func TestPresetsDoNotDependOnChunks(t *testing.T) {
	for _, name := range refmodel.Names() {
		r := newRig(t, name, 1)
		p := prompt(4, 300)
		_, want := r.run(p, len(p), 64, 2)
		_, got := r.run(p, 77, 16, 2)
		for i := range want {
			if !equalBits(want[i], got[i]) {
				t.Errorf("%s: logits of step %d differ", name, i)
			}
		}
	}
}

func TestBatchingDoesNotChangeABit(t *testing.T) {
	r := newRig(t, small.Name, 1)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(t, "sequences")
		const block, per = 16, 12
		shared := r.cache(block, 2*per*n)
		var batch []Chunk
		var want [][]float32
		for i := range n {
			p := prompt(rapid.Uint64().Draw(t, "prompt"), rapid.IntRange(1, 60).Draw(t, "tokens"))
			_, lo := r.run(p, len(p), block, 1)
			want = append(want, lo[0])
			split := rapid.IntRange(0, len(p)-1).Draw(t, "split")
			tab := tables(2*per*i, per)
			if split > 0 {
				r.forward(shared, []Chunk{{Tokens: p[:split], Tables: tab}})
			}
			batch = append(batch, Chunk{Tokens: p[split:], Start: split, Tables: tab, Logits: true})
		}
		for i, lo := range r.forward(shared, batch) {
			if !equalBits(lo, want[i]) {
				t.Fatalf("sequence %d of %d differs from running alone", i, n)
			}
		}
	})
}

func TestOneWorkerAndTwoAgree(t *testing.T) {
	r := newRig(t, "moai/seeded", 3)
	p := prompt(5, 700)
	_, a := r.run(p, 512, 64, 2)
	r.m.workers = []*scratch{{}, {}, {}}
	_, b := r.run(p, 512, 64, 2)
	r.m.workers = r.m.workers[:1]
	_, c := r.run(p, 512, 64, 2)
	for i := range a {
		if !equalBits(a[i], b[i]) || !equalBits(a[i], c[i]) {
			t.Errorf("step %d depends on the number of workers", i)
		}
	}
}

func TestSeedsDiffer(t *testing.T) {
	for _, name := range refmodel.Names() {
		_, a := newRig(t, name, 1).run(prompt(1, 40), 40, 16, 1)
		_, b := newRig(t, name, 2).run(prompt(1, 40), 40, 16, 1)
		if equalBits(a[0], b[0]) {
			t.Errorf("%s: the seed changes nothing", name)
		}
	}
}

func formatWith(block int) refmodel.Format {
	f := refmodel.DefaultFormat()
	f.BlockSize = block
	return f
}
