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
	writers int // chunks between target and drop
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
	parts := k.parts(c)
	for i, p := range parts {
		if !p.piece.lease.Hold() {
			for _, q := range parts[:i] {
				q.piece.lease.Drop()
			}
			return nil, false, nil
		}
		dst = append(dst, k.arena.View(p.piece.lease.Extents(), p.off, p.n)...)
	}
	k.taken = taken
	l.writers++
	return dst, true, nil
}

// drop ends what target began, and reports whether the landing is shut and was
// the last to be written to.
func (l *landing) drop(h wire.ChunkHeader) bool {
	l.mu.Lock()
	parts := l.ranks[h.Rank].parts(kvcache.Range{Offset: h.Offset, Length: int64(h.Length)})
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
