package transfer

import (
	"fmt"
	"slices"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// SenderOptions describe a reservation.
type SenderOptions struct {
	Tokens   int   // of the prompt
	Ranks    int   // of the engine
	Bytes    int64 // of each rank's payload
	MaxChunk int64 // bytes of a chunk
	Window   int   // chunks that may be on their way to the sockets at once
	Timeouts Timeouts
}

// Sender is the prefill daemon's side of a transfer.
type Sender struct {
	o        SenderOptions
	state    State
	deadline Instant
	end      Ended
	offer    *Offer
	lifetime time.Duration // of the peer's claim
	claimant string
	peer     Session // that claimed; 0: none, or lost
	back     Session // a later one of the claimant, which has not claimed again
	ranks    []sendRank
	inflight int
	freed    bool
	sent     int64
	chunks   int64
	next     int // rank whose turn it is
}

type sendRank struct {
	stored  Set
	granted Set
	credit  int64
	todo    Set // granted and not yet handed to a stream
}

// NewSender begins with a reservation, for which pages have been leased.
func NewSender(now Instant, o SenderOptions) *Sender {
	return &Sender{o: o, state: Reserved, deadline: now.Add(o.Timeouts.Reserve), ranks: make([]sendRank, o.Ranks)}
}

// State is the current state.
func (s *Sender) State() State { return s.state }

// End is how it ended; meaningful in a terminal state.
func (s *Sender) End() Ended { return s.end }

// Deadline is when the caller must Tick.
func (s *Sender) Deadline() Instant { return s.deadline }

// Done reports that an ended transfer need not be remembered any more.
func (s *Sender) Done(now Instant) bool {
	return s.state.Terminal() && s.freed && s.inflight == 0 && now >= s.deadline
}

// Moved is the number of payload bytes and chunks that left, over all ranks.
func (s *Sender) Moved() (bytes, chunks int64) { return s.sent, s.chunks }

// Claimant is the node/engine that claimed, empty if none did.
func (s *Sender) Claimant() string { return s.claimant }

// Offered gives what was offered; nil before.
func (s *Sender) Offered() *Offer { return s.offer }

// InFlight is the number of chunks that were asked for and not answered.
func (s *Sender) InFlight() int { return s.inflight }

// Step takes one event. See the package comment for the contract.
func (s *Sender) Step(now Instant, ev Event) ([]Effect, error) {
	if s.state.Terminal() {
		return s.after(now, ev)
	}
	if now >= s.deadline {
		out := s.expire(now)
		more, err := s.after(now, ev)
		return append(out, more...), err
	}
	switch e := ev.(type) {
	case Offer:
		return s.onOffer(now, e)
	case Stored:
		return s.onStored(now, e)
	case Withdraw:
		return s.finish(now, Ended{Withdrawn, CodeWithdrawn, e.Detail}, true), nil
	case Cancel:
		return s.finish(now, Ended{Aborted, e.Code, e.Detail}, true), nil
	case Fail:
		return s.finish(now, Ended{Aborted, e.Code, e.Detail}, true), nil
	case EngineGone:
		out := s.finish(now, Ended{Aborted, CodeWithdrawn, e.Detail}, true)
		if e.Fenced {
			out = s.free(now, out)
		}
		return out, nil
	case PeerUp:
		if s.claimant != "" && s.peer == 0 {
			s.back = e.Session // it claims again, or tells how it ended
		}
		return nil, nil
	case PeerClaim:
		return s.onClaim(now, e)
	case PeerGrant:
		return s.onGrant(now, e), nil
	case PeerCredit:
		return s.onCredit(now, e), nil
	case PeerDown:
		return s.onDown(now, e), nil
	case PeerCommit:
		if !s.from(e.Session) || s.offer == nil {
			return nil, nil
		}
		return s.finish(now, Ended{Outcome: Committed}, false), nil
	case PeerAbort:
		if !s.from(e.Session) {
			return nil, nil
		}
		return s.finish(now, Ended{Aborted, e.Code, e.Detail}, false), nil
	case ChunkSent:
		return s.onSent(now, e), nil
	}
	return nil, nil
}

// from reports whether a session is the claimant's.
func (s *Sender) from(p Session) bool { return p != 0 && (p == s.peer || p == s.back) }

func (s *Sender) onOffer(now Instant, e Offer) ([]Effect, error) {
	if e.Tokens != s.o.Tokens {
		return nil, refuse("conflict", "%d tokens are offered but %d were reserved", e.Tokens, s.o.Tokens)
	}
	if s.offer != nil {
		if *s.offer != e {
			return nil, refuse("conflict", "this id was offered with another token hash")
		}
		return nil, nil
	}
	s.offer = &e
	if s.claimant != "" && s.peer != 0 {
		return s.meet(now), nil
	}
	s.state, s.deadline = Offered, now.Add(s.o.Timeouts.Offer)
	return nil, nil
}

// meet answers a claim with the offer.
func (s *Sender) meet(now Instant) []Effect {
	s.state, s.deadline = Claimed, now.Add(s.lifetime)
	return []Effect{SendOffer{s.peer}}
}

func (s *Sender) onClaim(now Instant, e PeerClaim) ([]Effect, error) {
	if s.claimant != "" && s.claimant != e.Claimant {
		return nil, refuse("conflict", "this id is claimed by %s", s.claimant)
	}
	again := s.peer == e.Session
	s.claimant, s.peer, s.back = e.Claimant, e.Session, 0
	s.lifetime = min(e.Lifetime, 10*s.o.Timeouts.Claim)
	if s.offer == nil {
		return nil, nil
	}
	if again {
		if s.state == Claimed {
			s.deadline = max(s.deadline, now.Add(s.lifetime))
		}
		return nil, nil
	}
	for i := range s.ranks {
		s.ranks[i].granted, s.ranks[i].todo, s.ranks[i].credit = nil, nil, 0
	}
	return s.meet(now), nil
}

func (s *Sender) onGrant(now Instant, e PeerGrant) []Effect {
	if e.Session != s.peer || s.peer == 0 || s.offer == nil {
		return nil
	}
	switch {
	case len(e.Ranges) > MaxRanges:
		return []Effect{Violation{e.Session, fmt.Sprintf("GRANT of more than %d ranges", MaxRanges)}}
	case e.Rank < 0 || e.Rank >= len(s.ranks) || !valid(e.Ranges, s.o.Bytes):
		return []Effect{Violation{e.Session, "GRANT for a rank or range that the payload does not have"}}
	}
	// A grant is contiguous ranges in payload order, so that it is a Set but for
	// ranges that touch; Prefix counts the same either way.
	g := SetOf(e.Ranges...)
	s.ranks[e.Rank].granted, s.ranks[e.Rank].todo = g, g
	s.ranks[e.Rank].credit = min(max(e.Credit, 0), g.Bytes())
	s.state = Sending
	s.renew(now)
	return s.pump(now, nil)
}

func (s *Sender) onCredit(now Instant, e PeerCredit) []Effect {
	if e.Session != s.peer || s.peer == 0 || (s.state != Sending && s.state != Sent) {
		return nil
	}
	if e.Rank < 0 || e.Rank >= len(s.ranks) {
		return []Effect{Violation{e.Session, "CREDIT for a rank that the engine does not have"}}
	}
	r := &s.ranks[e.Rank]
	if e.Credit <= r.credit {
		return nil
	}
	r.credit = min(e.Credit, r.granted.Bytes())
	s.renew(now)
	return s.pump(now, nil)
}

func (s *Sender) onStored(now Instant, e Stored) ([]Effect, error) {
	if e.Rank < 0 || e.Rank >= len(s.ranks) {
		return nil, refuse("bad_request", "the engine has no rank %d", e.Rank)
	}
	for _, r := range e.Ranges {
		if r.Length < 0 || r.Offset < 0 || r.Length > s.o.Bytes || r.Offset > s.o.Bytes-r.Length {
			return nil, refuse("bad_request", "stored range [%d, +%d) lies outside the payload of %d bytes", r.Offset, r.Length, s.o.Bytes)
		}
	}
	before := s.ranks[e.Rank].stored
	after := before
	for _, r := range e.Ranges {
		if after = after.Add(r); len(after) > MaxRanges {
			return nil, refuse("bad_request", "what is stored would be in more than %d pieces", MaxRanges)
		}
	}
	if after.Bytes() == before.Bytes() {
		return nil, nil
	}
	s.ranks[e.Rank].stored = after
	if s.state == Sending {
		s.renew(now)
	}
	return s.pump(now, nil), nil
}

func (s *Sender) onDown(now Instant, e PeerDown) []Effect {
	if e.Session == s.back {
		s.back = 0
	}
	if e.Session != s.peer || s.peer == 0 {
		return nil
	}
	s.peer = 0
	for i := range s.ranks {
		s.ranks[i].granted, s.ranks[i].todo, s.ranks[i].credit = nil, nil, 0
	}
	if s.offer != nil {
		s.state, s.deadline = Offered, now.Add(s.o.Timeouts.Return)
	}
	return nil
}

func (s *Sender) onSent(now Instant, e ChunkSent) []Effect {
	s.inflight--
	if e.Session != s.peer {
		return s.pump(now, nil) // it filled the window of the session that is there now
	}
	if e.Failed {
		return nil
	}
	s.sent += e.Length
	s.chunks++
	if s.state == Sending {
		s.renew(now)
	}
	return s.pump(now, nil)
}

func (s *Sender) renew(now Instant) { s.deadline = now.Add(2 * s.o.Timeouts.Progress) }

// pump asks for chunks, a rank after the other, while the window has room. A
// short piece waits for its neighbour while others are under way: storing layer
// by layer must not make tiny chunks.
func (s *Sender) pump(now Instant, out []Effect) []Effect {
	if s.state != Sending && s.state != Sent {
		return out
	}
	idle := 0
	for s.inflight < s.o.Window && idle < len(s.ranks) {
		r := &s.ranks[s.next]
		c, ok := r.chunk(s.o.MaxChunk, s.inflight > 0)
		if !ok {
			idle++
		} else {
			idle = 0
			r.todo = r.todo.Sub(Set{c})
			s.inflight++
			out = append(out, SendChunk{s.peer, s.next, c.Offset, c.Length})
		}
		s.next = (s.next + 1) % len(s.ranks)
	}
	all := s.inflight == 0 && !slices.ContainsFunc(s.ranks, func(r sendRank) bool { return len(r.todo) > 0 })
	switch {
	case !all:
		s.state = Sending
	case s.state == Sending:
		s.state, s.deadline = Sent, now.Add(s.o.Timeouts.Load*3/2)
	}
	return out
}

func (r *sendRank) chunk(limit int64, busy bool) (kvcache.Range, bool) {
	if len(r.todo) == 0 {
		return kvcache.Range{}, false
	}
	can := r.todo.And(r.granted.Prefix(r.credit)).And(r.stored)
	for _, c := range can {
		if c.Length >= limit {
			return kvcache.Range{Offset: c.Offset, Length: limit}, true
		}
		last := slices.ContainsFunc(r.todo, func(t kvcache.Range) bool { return end(t) == end(c) })
		if last || !busy {
			return c, true
		}
	}
	return kvcache.Range{}, false
}
