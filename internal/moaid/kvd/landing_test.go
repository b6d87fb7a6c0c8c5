package kvd

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/arena"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// noSession stands for a session by its identity only.
type noSession struct {
	transport.Session
	name string
}

func (noSession) Encryption() api.Encryption { return api.EncryptionAEAD }

// TestLandingAgainstOracle: chunks of random ranges reach exactly the bytes that
// were granted and credited, once each, and nothing else in the arena changes.
func TestLandingAgainstOracle(t *testing.T) {
	a, err := arena.Create("t", 8*arena.PageSize, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Retire()
	us, other := &noSession{name: "us"}, &noSession{name: "other"}
	rapid.Check(t, func(t *rapid.T) {
		l := &landing{ranks: make([]landingRank, 1)}
		var ranges transfer.Set
		var pieces []piece
		for _, r := range []kvcache.Range{{Offset: 100, Length: 70_000}, {Offset: 90_000, Length: 10}, {Offset: 100_000, Length: 66_000}} {
			lease, ok := a.Lease(r.Length)
			if !ok {
				t.Fatal("no pages")
			}
			defer lease.Release()
			pieces = append(pieces, piece{r, lease})
			ranges = ranges.Add(r)
			for _, v := range a.View(lease.Extents(), 0, r.Length) {
				clear(v)
			}
		}
		l.add(0, a, pieces)
		credit := rapid.Int64Range(0, ranges.Bytes()).Draw(t, "credit")
		l.grant(us, 0, ranges, credit)
		allowed := ranges.Prefix(credit)
		var taken transfer.Set
		want := make([]byte, 200_000)
		for i := range rapid.IntRange(1, 20).Draw(t, "chunks") {
			h := wire.ChunkHeader{Kind: wire.KindKV, Offset: rapid.Int64Range(0, 170_000).Draw(t, "off"), Length: rapid.IntRange(1, 40_000).Draw(t, "len")}
			c := kvcache.Range{Offset: h.Offset, Length: int64(h.Length)}
			if _, ok, err := l.target(other, h); ok || err != nil {
				t.Fatal("another session's chunk was taken")
			}
			dst, ok, err := l.target(us, h)
			var we *wire.Error
			switch {
			case !allowed.Has(c):
				if !errors.As(err, &we) || we.Code != wire.CodeProtocol {
					t.Fatalf("%+v outside %v: %v %v", c, allowed, ok, err)
				}
				continue
			case len(taken.And(transfer.Set{c})) > 0:
				if ok || err != nil {
					t.Fatalf("%+v came twice: %v %v", c, ok, err)
				}
				continue
			case !ok || err != nil:
				t.Fatalf("%+v within %v: %v %v", c, allowed, ok, err)
			}
			taken = taken.Add(c)
			n := 0
			for _, b := range dst {
				for j := range b {
					b[j] = byte(i + 1)
				}
				n += len(b)
			}
			if n != h.Length {
				t.Fatalf("%d bytes of memory for %d", n, h.Length)
			}
			for o := h.Offset; o < h.Offset+int64(h.Length); o++ {
				want[o] = byte(i + 1)
			}
			l.drop(h)
		}
		for _, p := range pieces {
			got := bytes.Join(a.View(p.lease.Extents(), 0, p.r.Length), nil)
			if !bytes.Equal(got, want[p.r.Offset:p.r.Offset+p.r.Length]) {
				t.Fatalf("bytes at %+v are wrong", p.r)
			}
		}
	})
}

// TestLandingOutlivesItsTransfer: pages stay while a chunk is being written, and
// nothing is taken afterwards.
func TestLandingOutlivesItsTransfer(t *testing.T) {
	a, err := arena.Create("t", 2*arena.PageSize, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Retire()
	lease, _ := a.Lease(1000)
	l := &landing{ranks: make([]landingRank, 1)}
	l.add(0, a, []piece{{kvcache.Range{Length: 1000}, lease}})
	s := &noSession{}
	l.grant(s, 0, transfer.Set{{Length: 1000}}, 1000)
	h := wire.ChunkHeader{Length: 500}
	if _, ok, err := l.target(s, h); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if l.shut() || l.idle() {
		t.Error("forgotten while a chunk is being written")
	}
	lease.Release()
	if u := a.Usage(); u.Quarantined != 1 {
		t.Errorf("%+v", u)
	}
	if _, ok, _ := l.target(s, wire.ChunkHeader{Offset: 500, Length: 500}); ok {
		t.Error("a chunk was taken after the end")
	}
	if !l.drop(h) || !l.idle() {
		t.Error("the last write must say so")
	}
	if u := a.Usage(); u.Free != 2 {
		t.Errorf("%+v", u)
	}
}

// A peer that sends every other byte makes each chunk cost more than the last.
func TestChunksInTooManyPieces(t *testing.T) {
	a, err := arena.Create("t", 2*arena.PageSize, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Retire()
	lease, ok := a.Lease(2 * arena.PageSize)
	if !ok {
		t.Fatal("no pages")
	}
	defer lease.Release()
	whole := kvcache.Range{Offset: 0, Length: 2 * arena.PageSize}
	us := &noSession{}
	l := &landing{ranks: make([]landingRank, 1)}
	l.add(0, a, []piece{{whole, lease}})
	l.grant(us, 0, transfer.Set{whole}, whole.Length)
	for i := range transfer.MaxRanges + 1 {
		h := wire.ChunkHeader{Kind: wire.KindKV, Offset: int64(2 * i), Length: 1}
		_, ok, err := l.target(us, h)
		var we *wire.Error
		switch {
		case i < transfer.MaxRanges && (!ok || err != nil):
			t.Fatalf("chunk %d: %v", i, err)
		case i == transfer.MaxRanges && (ok || !errors.As(err, &we) || we.Code != wire.CodeProtocol):
			t.Errorf("chunk %d was taken: %v", i, err)
		}
		if ok {
			l.drop(h)
		}
	}
}
