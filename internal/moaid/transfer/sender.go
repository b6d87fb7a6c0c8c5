package transfer

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// SenderOptions describe a reservation.
type SenderOptions struct {
	Tokens   int   // of the prompt
	Own      []Set // by rank of the engine: what the rank stores of its payload
	MaxChunk int64 // bytes of a chunk
	Window   int   // chunks that may be on their way to the sockets at once
	Timeouts Timeouts
}

// View is how a claimant sees what the engine stores. Its ranks and payloads may
// be others than the engine's.
type View struct {
	Ranks int
	Bytes int64 // of each rank's payload
	// Available gives, for each of the claimant's ranks, what can be made of what the
	// engine's ranks have stored. It is pure, and grows with stored.
	Available func(stored []Set) []Set
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
	stored   []Set   // by rank of the engine
	view     View    // of the claimant
	stale    bool    // something was stored since ranks' available was computed
	ranks    []sendRank
	inflight int
	freed    bool
	sent     int64
	chunks   int64
	next     int // rank whose turn it is
}

// sendRank is a rank of the claimant.
type sendRank struct {
	available Set
	granted   Set
	credit    int64
	todo      Set // granted and not yet handed to a stream
}

// NewSender begins with a reservation, for which pages have been leased.
func NewSender(now Instant, o SenderOptions) *Sender {
	return &Sender{o: o, state: Reserved, deadline: now.Add(o.Timeouts.Reserve), stored: make([]Set, len(o.Own))}
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

// Moved is the number of payload bytes and chunks that left, over all ranks of the claimant.
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
	if !again {
		s.look(e.View)
	}
	if s.offer == nil {
		return nil, nil
	}
	if again {
		if s.state == Claimed {
			s.deadline = max(s.deadline, now.Add(s.lifetime))
		}
		return nil, nil
	}
	return s.meet(now), nil
}

// look begins anew with a claimant's view: nothing is granted.
func (s *Sender) look(v View) {
	s.view, s.ranks, s.next, s.stale = v, make([]sendRank, v.Ranks), 0, true
}

// refresh computes what can be sent, if more was stored since it was last done.
func (s *Sender) refresh() bool {
	if !s.stale {
		return false
	}
	s.stale = false
	for i, a := range s.view.Available(s.stored) {
		if i < len(s.ranks) {
			s.ranks[i].available = a
		}
	}
	return true
}

func (s *Sender) onGrant(now Instant, e PeerGrant) []Effect {
	if e.Session != s.peer || s.peer == 0 || s.offer == nil {
		return nil
	}
	switch {
	case len(e.Ranges) > MaxRanges:
		return []Effect{Violation{e.Session, fmt.Sprintf("GRANT of more than %d ranges", MaxRanges)}}
	case e.Rank < 0 || e.Rank >= len(s.ranks) || !valid(e.Ranges, s.view.Bytes):
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
	after, err := s.addStored(e)
	if err != nil {
		return nil, err
	}
	if after.Bytes() == s.stored[e.Rank].Bytes() {
		return nil, nil
	}
	s.stored[e.Rank], s.stale = after, true
	if s.state == Sending {
		s.renew(now)
	}
	return s.pump(now, nil), nil
}

// addStored gives what a rank has stored with a report.
func (s *Sender) addStored(e Stored) (Set, error) {
	if e.Rank < 0 || e.Rank >= len(s.stored) {
		return nil, refuse("bad_request", "the engine has no rank %d", e.Rank)
	}
	after := s.stored[e.Rank]
	for _, r := range e.Ranges {
		if r.Length < 0 || r.Offset < 0 || r.Offset > math.MaxInt64-r.Length || !s.o.Own[e.Rank].Has(r) {
			return nil, refuse("bad_request", "stored range [%d, +%d) lies outside what rank %d stores of the payload", r.Offset, r.Length, e.Rank)
		}
		if after = after.Add(r); len(after) > MaxRanges {
			return nil, refuse("bad_request", "what is stored would be in more than %d pieces", MaxRanges)
		}
	}
	return after, nil
}

func (s *Sender) onDown(now Instant, e PeerDown) []Effect {
	if e.Session == s.back {
		s.back = 0
	}
	if e.Session != s.peer || s.peer == 0 {
		return nil
	}
	s.peer = 0
	s.look(s.view)
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
			if idle++; idle == len(s.ranks) && s.owes() && s.refresh() {
				idle = 0 // once: there is nothing newer then
			}
		} else {
			idle = 0
			r.todo = r.todo.Sub(Set{c})
			s.inflight++
			out = append(out, SendChunk{s.peer, s.next, c.Offset, c.Length})
		}
		s.next = (s.next + 1) % len(s.ranks)
	}
	all := s.inflight == 0 && !s.owes()
	switch {
	case !all:
		s.state = Sending
	case s.state == Sending:
		s.state, s.deadline = Sent, now.Add(s.o.Timeouts.Load*3/2)
	}
	return out
}

// owes reports whether something was granted and not yet handed to a stream.
func (s *Sender) owes() bool {
	return slices.ContainsFunc(s.ranks, func(r sendRank) bool { return len(r.todo) > 0 })
}

func (r *sendRank) chunk(limit int64, busy bool) (kvcache.Range, bool) {
	if len(r.todo) == 0 {
		return kvcache.Range{}, false
	}
	can := r.todo.And(r.granted.Prefix(r.credit)).And(r.available)
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
