package pacing

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestNeverBeyondLimitOrRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 4<<20).Draw(t, "limit")
		rate := rapid.SampledFrom([]int64{0, 1 << 20, 100 << 20}).Draw(t, "rate")
		b := New(limit, rate)
		now, given, out := int64(1), int64(0), int64(0)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += rapid.Int64Range(0, int64(50*time.Millisecond)).Draw(t, "dt")
			if rapid.Bool().Draw(t, "give") {
				n := b.Give(now, rapid.Int64Range(0, 8<<20).Draw(t, "want"))
				given, out = given+n, out+n
			} else if out > 0 {
				n := rapid.Int64Range(1, out).Draw(t, "back")
				b.Return(n)
				out -= n
			}
			if b.InFlight() != out || out > limit {
				t.Fatalf("in flight %d, counted %d, limit %d", b.InFlight(), out, limit)
			}
			if rate > 0 && float64(given) > float64(limit)+float64(now)/1e9*float64(rate)+1 {
				t.Fatalf("%d bytes given in %v at %d B/s with burst %d", given, time.Duration(now), rate, limit)
			}
		}
	})
}

// TestNoStarvation: whoever waits as long as Wait says gets something.
func TestNoStarvation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 4<<20).Draw(t, "limit")
		rate := rapid.SampledFrom([]int64{0, 1 << 20, 100 << 20}).Draw(t, "rate")
		want := rapid.Int64Range(1, 8<<20).Draw(t, "want")
		b := New(limit, rate)
		now := int64(1)
		left := want
		for range 10000 {
			n := b.Give(now, left)
			b.Return(n)
			if left -= n; left == 0 {
				return
			}
			if n == 0 {
				d := b.Wait(now, left)
				if d == 0 {
					t.Fatalf("nothing given with nothing in flight and no wait: want %d limit %d rate %d", left, limit, rate)
				}
				now += int64(d)
			}
			if limit < 1024 && want-left > 64*limit {
				return
			}
		}
	})
}

func TestQuantum(t *testing.T) {
	b := New(Quantum+10, 0)
	if n := b.Give(1, 4*Quantum); n != Quantum+10 {
		t.Fatal(n)
	}
	b.Return(20)
	if n := b.Give(1, 4*Quantum); n != 0 {
		t.Fatalf("crumbs of %d bytes were given", n)
	}
	if n := b.Give(1, 15); n != 15 {
		t.Fatalf("a small rest got %d", n)
	}
}
