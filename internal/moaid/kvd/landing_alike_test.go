package kvd

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/arena"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// threeRanks is a landing of three ranks, each with an arena and pages for the same
// ranges, of which the middle part is alike on ranks 0 and 2.
func threeRanks(t interface{ Fatal(...any) }, arenas []*arena.Arena, alikePart kvcache.Range) (l *landing, leases []*arena.Lease) {
	l = &landing{ranks: make([]landingRank, len(arenas))}
	for rank, a := range arenas {
		var ps []piece
		for _, r := range []kvcache.Range{{Offset: 0, Length: 70_000}, {Offset: 70_000, Length: 60_000}} {
			lease, ok := a.Lease(r.Length)
			if !ok {
				t.Fatal("no pages")
			}
			for _, v := range a.View(lease.Extents(), 0, r.Length) {
				clear(v)
			}
			leases = append(leases, lease)
			ps = append(ps, piece{r, lease})
		}
		l.add(rank, a, ps)
	}
	l.share([]alike{{alikePart, []int{0, 2}}})
	return l, leases
}

// TestAlikeBytesSpread: what ranks have alike is on both once a chunk is verified,
// and nothing else changes.
func TestAlikeBytesSpread(t *testing.T) {
	var arenas []*arena.Arena
	for range 3 {
		a, err := arena.Create("t", 6*arena.PageSize, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Retire()
		arenas = append(arenas, a)
	}
	const size = 130_000
	s := &noSession{}
	rapid.Check(t, func(t *rapid.T) {
		lo := rapid.Int64Range(0, size-1).Draw(t, "alike from")
		part := kvcache.Range{Offset: lo, Length: rapid.Int64Range(1, size-lo).Draw(t, "alike bytes")}
		l, leases := threeRanks(t, arenas, part)
		whole := transfer.Set{{Length: size}}
		var want [3][]byte
		for rank := range want {
			l.grant(s, rank, whole, size)
			want[rank] = make([]byte, size)
		}
		for i := range rapid.IntRange(1, 8).Draw(t, "chunks") {
			off := rapid.Int64Range(0, size-1).Draw(t, "off")
			h := wire.ChunkHeader{Kind: wire.KindKV, Rank: uint16(rapid.IntRange(0, 1).Draw(t, "rank")), Offset: off, Length: int(rapid.Int64Range(1, min(size-off, 50_000)).Draw(t, "len"))}
			dst, ok, err := l.target(s, h)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				continue // overlaps an earlier one
			}
			for _, b := range dst {
				for j := range b {
					b[j] = byte(i + 1)
				}
			}
			l.spread(s, h)
			l.drop(h)
			for o := off; o < off+int64(h.Length); o++ {
				want[h.Rank][o] = byte(i + 1)
				if h.Rank == 0 && o >= part.Offset && o < part.Offset+part.Length {
					want[2][o] = byte(i + 1)
				}
			}
		}
		for rank := range want {
			if got := bytes.Join(l.ranks[rank].views(kvcache.Range{Length: size}), nil); !bytes.Equal(got, want[rank]) {
				t.Fatalf("bytes of rank %d are wrong", rank)
			}
		}
		for _, x := range leases {
			x.Release()
		}
		for _, a := range arenas {
			if u := a.Usage(); u.Free != u.Total {
				t.Fatalf("%+v", u)
			}
		}
	})
}

// TestAlikePagesAreHeld: the pages of every rank that a chunk is copied to stay
// until it is done, and nothing is copied after the end.
func TestAlikePagesAreHeld(t *testing.T) {
	var arenas []*arena.Arena
	for range 3 {
		a, err := arena.Create("t", 6*arena.PageSize, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Retire()
		arenas = append(arenas, a)
	}
	l, leases := threeRanks(t, arenas, kvcache.Range{Offset: 60_000, Length: 20_000})
	s := &noSession{}
	l.grant(s, 0, transfer.Set{{Length: 130_000}}, 130_000)
	h := wire.ChunkHeader{Offset: 50_000, Length: 40_000}
	dst, ok, err := l.target(s, h)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	for _, b := range dst {
		for i := range b {
			b[i] = 9
		}
	}
	l.shut()
	for _, x := range leases {
		x.Release()
	}
	for rank, want := range []int{3, 0, 3} {
		if u := arenas[rank].Usage(); u.Quarantined != want {
			t.Errorf("rank %d: %+v", rank, u)
		}
	}
	l.spread(s, h)
	if got := bytes.Join(l.ranks[2].views(kvcache.Range{Offset: 60_000, Length: 20_000}), nil); bytes.ContainsRune(got, 9) {
		t.Error("bytes were copied after the end")
	}
	if !l.drop(h) {
		t.Error("the last write must say so")
	}
	for rank, a := range arenas {
		if u := a.Usage(); u.Free != u.Total {
			t.Errorf("rank %d: %+v", rank, u)
		}
	}
}
