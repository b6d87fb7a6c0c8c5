package transformer

import (
	"slices"
	"testing"
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
	r := newRig(t, "moai/seeded", 1)
	const trials, steps = 100, 4
	rng := &random{state: 9}
	pick := func(n int) int { return int(rng.next() % uint64(n)) }
	changed := 0
	for i := range trials / 10 {
		p := prompt(uint64(i), 40+i*60)
		per := (len(p)+steps)/64 + 1
		c, tab := r.prefill(p, 64, per)
		_, want := r.decode(c, tab, p, steps)
		for range 10 {
			group, slot, head := pick(2), pick(2), pick(2)
			first := 0
			if group == 1 {
				first = max(0, len(p)-128)
			}
			pos := first + pick(len(p)-1-first)
			page := c.data[slot*c.mem.slot+tab[group][pos/64]*c.mem.block:]
			at, bit := (head*64+pos%64)*128+pick(128), byte(1)<<pick(8)
			page[at] ^= bit
			_, got := r.decode(c, tab, p, steps)
			page[at] ^= bit
			if !slices.EqualFunc(got, want, equalBits) {
				changed++
			} else {
				t.Logf("no change: prompt %d group %d slot %d head %d pos %d byte %d bit %d", len(p), group, slot, head, pos, at%128, bit)
			}
		}
	}
	t.Logf("%d of %d flipped bits change the logits", changed, trials)
	if changed < trials*95/100 {
		t.Errorf("only %d of %d flipped bits change the logits", changed, trials)
	}
}
