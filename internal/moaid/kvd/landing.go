package kvd

import (
	"fmt"
	"sync"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/arena"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// piece is leased pages for a range of a rank's payload.
type piece struct {
	r     kvcache.Range
	lease *arena.Lease
}

// landing is where a transfer's chunks may be written. The owner opens it with
// each grant; streams ask it for each chunk.
type landing struct {
	mu      sync.Mutex
	session transport.Session // nil: nothing may be written
	ranks   []landingRank
	alike   []alike
	writers int // chunks between target and drop
}

// alike is a part of the payload that several ranks have alike. It travels for the
// first of them.
type alike struct {
	r     kvcache.Range
	ranks []int // ascending
}

// alikes gives the parts of a payload that several ranks have alike.
func alikes(fp *kvcache.Fingerprint, p kvcache.Payload) []alike {
	var out []alike
	for _, s := range p.Sections {
		sharers := make([][]int, fp.Ranks.Tensor)
		for rank := range fp.Ranks.Tensor {
			first := fp.Primary(s.Group, rank)
			sharers[first] = append(sharers[first], rank)
		}
		for _, ranks := range sharers {
			if len(ranks) > 1 {
				out = append(out, alike{kvcache.Range{Offset: s.Offset, Length: s.Bytes()}, ranks})
			}
		}
	}
	return out
}

type landingRank struct {
	arena   *arena.Arena
	pieces  []piece // ascending
	granted transfer.Set
	credit  int64
	taken   transfer.Set // of the current grant: written, or being written
}

// grant allows chunks of a rank from s. A new grant forgets what was taken.
func (l *landing) grant(s transport.Session, rank int, granted transfer.Set, credit int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = s
	l.ranks[rank].granted, l.ranks[rank].credit, l.ranks[rank].taken = granted, credit, nil
}

func (l *landing) raise(rank int, credit int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ranks[rank].credit = credit
}

// shut refuses all further chunks, for good, and reports whether none is being
// written: only then may it be forgotten.
func (l *landing) shut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = nil
	for i := range l.ranks {
		l.ranks[i].granted, l.ranks[i].credit, l.ranks[i].taken = nil, 0, nil
	}
	return l.writers == 0
}

// idle reports whether no chunk is being written.
func (l *landing) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writers == 0
}

// add makes leased pages known.
func (l *landing) add(rank int, a *arena.Arena, ps []piece) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := &l.ranks[rank]
	k.arena = a
	for _, p := range ps {
		i := 0
		for i < len(k.pieces) && k.pieces[i].r.Offset < p.r.Offset {
			i++
		}
		k.pieces = append(k.pieces[:i], append([]piece{p}, k.pieces[i:]...)...)
	}
}

// share says what several ranks have alike.
func (l *landing) share(list []alike) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alike = list
}

// target gives the memory for a chunk and holds its pages until drop.
func (l *landing) target(s transport.Session, h wire.ChunkHeader) (dst [][]byte, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != s {
		return nil, false, nil
	}
	if int(h.Rank) >= len(l.ranks) {
		return nil, false, &wire.Error{Code: wire.CodeProtocol, Reason: "a chunk names a rank that the engine does not have"}
	}
	k := &l.ranks[h.Rank]
	c := kvcache.Range{Offset: h.Offset, Length: int64(h.Length)}
	if !k.granted.Prefix(k.credit).Has(c) {
		if len(k.granted) == 0 {
			return nil, false, nil // this rank's grant is complete
		}
		return nil, false, &wire.Error{Code: wire.CodeProtocol, Reason: "a chunk lies outside the granted ranges or the credit"}
	}
	if len(k.taken.And(transfer.Set{c})) > 0 {
		return nil, false, nil // sent twice: the first copy counts
	}
	taken := k.taken.Add(c)
	if len(taken) > transfer.MaxRanges {
		return nil, false, &wire.Error{Code: wire.CodeProtocol, Reason: fmt.Sprintf("the chunks of a rank lie in more than %d pieces", transfer.MaxRanges)}
	}
	touched := l.touched(h)
	for i, p := range touched {
		if !p.piece.lease.Hold() {
			for _, q := range touched[:i] {
				q.piece.lease.Drop()
			}
			return nil, false, nil
		}
	}
	dst = k.views(c)
	k.taken = taken
	l.writers++
	return dst, true, nil
}

// copies gives the parts of a chunk that other ranks have alike.
func (l *landing) copies(h wire.ChunkHeader) []alike {
	var out []alike
	for _, a := range l.alike {
		if a.ranks[0] != int(h.Rank) {
			continue
		}
		both := transfer.Set{a.r}.And(transfer.Set{{Offset: h.Offset, Length: int64(h.Length)}})
		for _, r := range both {
			out = append(out, alike{r, a.ranks[1:]})
		}
	}
	return out
}

// touched gives the pages that a chunk is written to, on all ranks.
func (l *landing) touched(h wire.ChunkHeader) []part {
	out := l.ranks[h.Rank].parts(kvcache.Range{Offset: h.Offset, Length: int64(h.Length)})
	for _, a := range l.copies(h) {
		for _, rank := range a.ranks {
			out = append(out, l.ranks[rank].parts(a.r)...)
		}
	}
	return out
}

// spread copies what several ranks have alike of a verified chunk from the rank
// that it travelled for to the others. The pages are held until drop. After shut
// nothing is copied: nobody will count it.
func (l *landing) spread(s transport.Session, h wire.ChunkHeader) {
	type move struct{ to, from [][]byte }
	var moves []move
	l.mu.Lock()
	if l.session == s {
		for _, a := range l.copies(h) {
			from := l.ranks[h.Rank].views(a.r)
			for _, rank := range a.ranks {
				moves = append(moves, move{l.ranks[rank].views(a.r), from})
			}
		}
	}
	l.mu.Unlock()
	for _, m := range moves {
		copyPieces(m.to, m.from)
	}
}

// copyPieces copies the concatenation of from to that of to, which is as long.
func copyPieces(to, from [][]byte) {
	var src []byte
	for _, dst := range to {
		for len(dst) > 0 {
			if len(src) == 0 {
				src, from = from[0], from[1:]
			}
			n := copy(dst, src)
			dst, src = dst[n:], src[n:]
		}
	}
}

// drop ends what target began, and reports whether the landing is shut and was
// the last to be written to.
func (l *landing) drop(h wire.ChunkHeader) bool {
	l.mu.Lock()
	parts := l.touched(h)
	l.writers--
	last := l.writers == 0 && l.session == nil
	l.mu.Unlock()
	for _, p := range parts {
		p.piece.lease.Drop()
	}
	return last
}

type part struct {
	piece  piece
	off, n int64
}

// parts splits a payload range over the pieces that hold it.
func (k *landingRank) parts(c kvcache.Range) []part {
	var out []part
	for _, p := range k.pieces {
		lo, hi := max(c.Offset, p.r.Offset), min(c.Offset+c.Length, p.r.Offset+p.r.Length)
		if lo < hi {
			out = append(out, part{p, lo - p.r.Offset, hi - lo})
		}
	}
	return out
}

// views gives the memory of a range of which all is leased.
func (k *landingRank) views(r kvcache.Range) [][]byte {
	var out [][]byte
	for _, p := range k.parts(r) {
		out = append(out, k.arena.View(p.piece.lease.Extents(), p.off, p.n)...)
	}
	return out
}

// landings finds landings by id, for the streams.
type landings struct {
	mu sync.RWMutex
	m  map[wire.ID]*landing
}

func (ls *landings) get(id wire.ID) *landing {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	return ls.m[id]
}

func (ls *landings) put(id wire.ID, l *landing) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.m[id] = l
}

func (ls *landings) remove(id wire.ID) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.m, id)
}
