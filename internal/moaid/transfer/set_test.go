package transfer

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

const universe = 40

func drawSet(t *rapid.T, name string) (Set, [universe]bool) {
	var s Set
	var bits [universe]bool
	for range rapid.IntRange(0, 6).Draw(t, name) {
		off := rapid.Int64Range(0, universe-1).Draw(t, "off")
		n := rapid.Int64Range(0, universe-off).Draw(t, "len")
		s = s.Add(kvcache.Range{Offset: off, Length: n})
		for i := off; i < off+n; i++ {
			bits[i] = true
		}
	}
	return s, bits
}

func same(t *rapid.T, what string, s Set, want func(int) bool) {
	last := int64(-2)
	var got [universe]bool
	for _, r := range s {
		if r.Length <= 0 || r.Offset <= last {
			t.Fatalf("%s: %v is not ascending, apart and without empty ranges", what, s)
		}
		last = end(r)
		for i := r.Offset; i < end(r); i++ {
			got[i] = true
		}
	}
	for i := range got {
		if got[i] != want(i) {
			t.Fatalf("%s: %v is wrong at %d", what, s, i)
		}
	}
}

func TestSetAgainstBits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, x := drawSet(t, "a")
		b, y := drawSet(t, "b")
		same(t, "add", a, func(i int) bool { return x[i] })
		same(t, "sub", a.Sub(b), func(i int) bool { return x[i] && !y[i] })
		same(t, "and", a.And(b), func(i int) bool { return x[i] && y[i] })
		n := rapid.Int64Range(0, universe).Draw(t, "n")
		left := n
		same(t, "prefix", a.Prefix(n), func(i int) bool {
			if !x[i] || left == 0 {
				return false
			}
			left--
			return true
		})
		r := kvcache.Range{Offset: rapid.Int64Range(0, universe-1).Draw(t, "r"), Length: 1}
		if a.Has(r) != x[r.Offset] {
			t.Fatalf("has %v in %v", r, a)
		}
		if !valid(a, universe) {
			t.Fatalf("%v is not valid", a)
		}
	})
}

func TestValidRefuses(t *testing.T) {
	for _, rs := range [][]kvcache.Range{{{Offset: 5, Length: 0}}, {{Offset: -1, Length: 2}}, {{Offset: 0, Length: 11}}, {{Offset: 9, Length: 2}}, {{Offset: 4, Length: 2}, {Offset: 5, Length: 1}}, {{Offset: 4, Length: 2}, {Offset: 0, Length: 1}}, {{Offset: 1 << 62, Length: 1 << 62}}} {
		if valid(rs, 10) {
			t.Errorf("%v was accepted", rs)
		}
	}
}
