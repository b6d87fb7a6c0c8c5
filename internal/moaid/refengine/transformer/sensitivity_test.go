package transformer

import (
	"slices"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// decode generates from a cache in which all but the last prompt token is there.
func (r *rig) decode(c *Cache, tab [][]int, p []int, steps int) (tokens []int, logits [][]float32) {
	next := p[len(p)-1]
	for i := range steps {
		lo := r.forward(c, []Chunk{{Tokens: []int{next}, Start: len(p) - 1 + i, Tables: tab, Logits: true}})[0]
		next = argmax(lo)
		tokens, logits = append(tokens, next), append(logits, lo)
	}
	return tokens, logits
}

func (r *rig) prefill(p []int, block, per int) (*Cache, [][]int) {
	c, tab := r.cache(block, 2*per), tables(0, per)
	r.forward(c, []Chunk{{Tokens: p, Tables: tab}})
	return c, tab
}

// Output must depend on what is in the cache, or a comparison of outputs proves
// nothing about a transfer.
func TestOtherWeightsInTheCacheChangeTheOutput(t *testing.T) {
	for _, name := range []string{"moai/seeded", "moai/reciting"} {
		right, wrong := newRig(t, name, 1), newRig(t, name, 2)
		const trials, steps = 15, 4
		differ := 0
		for i := range trials {
			p := prompt(uint64(i), 2+i*i)
			per := (len(p)+steps)/64 + 1
			c, tab := right.prefill(p, 64, per)
			want, _ := right.decode(c, tab, p, steps)
			c, tab = wrong.prefill(p, 64, per)
			got, _ := right.decode(c, tab, p, steps)
			if !slices.Equal(got, want) {
				differ++
			}
		}
		t.Logf("%s: %d of %d outputs differ", name, differ, trials)
		if differ < trials {
			t.Errorf("%s: only %d of %d outputs differ with other weights", name, differ, trials)
		}
	}
}

func TestOneBitOfTheCacheChangesTheLogits(t *testing.T) {
	for _, c := range []struct{ model, preset string }{
		{"moai/seeded", "default"}, {"moai/seeded", "mi300x"}, {"moai/seeded-heads", "h100"}, {"moai/latent", "h100"}, {"moai/moe", "default"},
	} {
		oneBit(t, c.model, c.preset)
	}
}

// oneBit flips bits of pages, one at a time.
func oneBit(t *testing.T, name, preset string) {
	f, err := refmodel.LookupFormat(preset)
	if err != nil {
		t.Fatal(err)
	}
	model, err := refmodel.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	fp, err := model.Fingerprint(1, f)
	if err != nil {
		t.Fatal(err)
	}
	const trials, each, steps = 60, 10, 3
	rng := &random{state: 9}
	pick := func(n int) int { return int(rng.next() % uint64(n)) }
	changed := 0
	for i := range trials / each {
		p := prompt(uint64(i), 40+i*90)
		tab, blocks := tablesFor(&fp, len(p)+steps)
		r := newRanks(t, model, f, 1, blocks)
		r.forward(Chunk{Tokens: p, Tables: tab})
		decode := func() (logits [][]float32) {
			next := p[len(p)-1]
			for i := range steps {
				lo := r.forward(Chunk{Tokens: []int{next}, Start: len(p) - 1 + i, Tables: tab, Logits: true})[0]
				next = argmax(lo)
				logits = append(logits, lo)
			}
			return logits
		}
		want := decode()
		for range each {
			group := pick(len(fp.Groups))
			g := fp.Groups[group]
			first := 0
			if g.Kind == kvcache.GroupSliding {
				first = max(0, len(p)-g.Window)
			}
			slot, head, pos := pick(len(g.Layers)), pick(g.Heads), first+pick(len(p)-1-first)
			part, dim := kvcache.Key, pick(g.KeyDim+g.ValueDim)
			if dim >= g.KeyDim {
				part, dim = kvcache.Value, dim-g.KeyDim
			}
			page, block := make([]byte, fp.PageBytes(group)), tab[group][pos/f.BlockSize]
			r.caches[0].ReadPage(group, slot, block, page)
			at, bit := int(fp.At(group, head, pos%f.BlockSize, part, dim))+pick(f.DType.Size()), byte(1)<<pick(8)
			page[at] ^= bit
			r.caches[0].WritePage(group, slot, block, page)
			if !slices.EqualFunc(decode(), want, equalBits) {
				changed++
			} else {
				t.Logf("%s as %s: no change: prompt %d group %d slot %d head %d pos %d part %d dim %d bit %d", name, preset, len(p), group, slot, head, pos, part, dim, bit)
			}
			page[at] ^= bit
			r.caches[0].WritePage(group, slot, block, page)
		}
	}
	t.Logf("%s as %s: %d of %d flipped bits change the logits", name, preset, changed, trials)
	if changed < trials*95/100 {
		t.Errorf("%s as %s: only %d of %d flipped bits change the logits", name, preset, changed, trials)
	}
}
