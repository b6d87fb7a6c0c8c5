package conformance

import (
	"io"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// toTwoRanks claims for an engine of two ranks what the target's engine of one
// rank has stored: grants and chunks are in the claimant's ranks and payloads, and
// its bytes are the halves of the heads.
func toTwoRanks(t *testing.T, g *Target) {
	two := g.Engines.Fingerprint
	two.Ranks.Tensor = 2
	e := g.engine(t, g.Engines.Prefill)
	s, st := g.peerOf(t, two)
	p := g.prompt(t)
	s.send((&wire.Claim{ID: p.id, SourceEngine: g.Engines.Prefill, ClaimantEngine: g.Engines.Far, LifetimeMS: 60_000}).Append(nil))
	g.storeAndOffer(t, e, p)
	s.await("OFFER", func(m wire.Message) bool { x, ok := m.(*wire.Offer); return ok && x.ID == p.id })
	want := halves(t, &g.Engines.Fingerprint, &two, p.payload, g.Engines.Tokens)
	size := int64(len(want[0]))
	for rank := range want {
		s.send((&wire.Grant{ID: p.id, Rank: uint16(rank), Ranges: []wire.Range{{Length: size}}, Credit: size}).Append(nil))
	}
	got := [2][]byte{make([]byte, size), make([]byte, size)}
	for left := 2 * size; left > 0; {
		h, plain := st.chunk()
		if h.ID != p.id || int(h.Rank) > 1 || h.Offset+int64(h.Length) > size {
			t.Fatalf("chunk %+v is not what was granted", h)
		}
		copy(got[h.Rank][h.Offset:], plain)
		left -= int64(h.Length)
	}
	for rank := range want {
		if string(got[rank]) != string(want[rank]) {
			t.Errorf("rank %d got other bytes than its heads have", rank)
		}
	}
	s.send((&wire.Commit{ID: p.id}).Append(nil))
	g.committed(t, e, p)
	s.alive()
	s.bye()
}

// halves gives the payloads of two ranks that a payload of one rank makes.
func halves(t *testing.T, one, two *kvcache.Fingerprint, payload []byte, tokens int) [2][]byte {
	t.Helper()
	from, err := one.PayloadFor(tokens)
	if err != nil {
		t.Fatal(err)
	}
	to, err := two.PayloadFor(tokens)
	if err != nil {
		t.Fatal(err)
	}
	out := [2][]byte{make([]byte, to.Bytes), make([]byte, to.Bytes)}
	n := one.Storage.BlockSize
	for i, s := range from.Sections {
		group := one.Groups[s.Group]
		for token := s.FirstBlock * n; token < tokens; token++ {
			for layer := range group.Layers {
				for head := range group.Heads {
					for d := range group.KeyDim + group.ValueDim {
						part, dim := kvcache.Key, d
						if d >= group.KeyDim {
							part, dim = kvcache.Value, d-group.KeyDim
						}
						place := func(f *kvcache.Fingerprint, s kvcache.Section, head int) int64 {
							return s.Offset + int64(token/n-s.FirstBlock)*s.BlockBytes + int64(layer)*f.PageBytes(s.Group) + f.At(s.Group, head, token%n, part, dim)
						}
						each := group.Heads / 2
						a, b := place(one, s, head), place(two, to.Sections[i], head%each)
						copy(out[head/each][b:][:one.Storage.DType.Size()], payload[a:])
					}
				}
			}
		}
	}
	return out
}

// chunk reads one chunk.
func (s *stream) chunk() (wire.ChunkHeader, []byte) {
	s.c.t.Helper()
	var head [wire.ChunkHeaderSize]byte
	if _, err := io.ReadFull(s.conn, head[:]); err != nil {
		s.c.t.Fatalf("a chunk did not come: %v", err)
	}
	h, err := wire.ParseChunkHeader(&head)
	if err != nil {
		s.c.t.Fatal(err)
	}
	body := make([]byte, h.Length+s.opener.Overhead())
	if _, err := io.ReadFull(s.conn, body); err != nil {
		s.c.t.Fatal(err)
	}
	plain, err := s.opener.Open(&head, body)
	if err != nil {
		s.c.t.Fatal(err)
	}
	return h, plain
}
