package transfer

import (
	"fmt"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// ReceiverOptions describe a claim.
type ReceiverOptions struct {
	Ranks int // of the engine
	// Need gives the payload ranges that the engine needs for a prompt of tokens
	// tokens of which it has the first from. It must be pure, and ascending in
	// payload order.
	Need func(tokens, from int) ([]kvcache.Range, error)
	// Own gives, for each rank, the payload ranges that travel for it; what else it
	// needs the caller makes of those of other ranks. It must be pure.
	Own      func(tokens int) ([]Set, error)
	Timeouts Timeouts
}

// Receiver is the decode daemon's side of a transfer.
type Receiver struct {
	o         ReceiverOptions
	state     State
	deadline  Instant
	patience  Instant // while claimed: the deadline if there is a session with the peer
	end       Ended
	verdict   Verdict
	connector *Claim // the engine's own claim; nil while only held
	from      int    // what is being fetched
	offer     *PeerOffer
	instance  Instance // of the daemon that offered
	peer      Session
	peerInst  Instance
	need      Set // for from
	leased    Set
	leasing   Set // asked for with LeasePages
	ranks     []recvRank
	given     int64 // credit given to us and neither verified nor returned
	asked     int64 // last WantCredit
	reports   []int8
	ending    *Ended // released or cancelled while loading
	freed     bool
	moved     int64
	chunks    int64
}

type recvRank struct {
	own      Set // what travels for this rank
	verified Set
	granted  Set // of the current GRANT
	credit   int64
	open     bool // a GRANT was sent in this session
}

// NewReceiver begins with a claim: the engine's, or nil for a request that the
// daemon holds.
func NewReceiver(now Instant, o ReceiverOptions, c *Claim) *Receiver {
	r := &Receiver{o: o, ranks: make([]recvRank, o.Ranks), reports: make([]int8, o.Ranks)}
	if c != nil {
		cc := *c
		r.connector, r.from = &cc, c.From
	}
	r.claimed(now, o.Timeouts.Claim)
	return r
}

// Step takes one event. See the package comment for the contract.
func (r *Receiver) Step(now Instant, ev Event) ([]Effect, error) {
	if r.state.Terminal() {
		return r.after(now, ev)
	}
	if now >= r.deadline {
		out := r.expire(now)
		more, err := r.after(now, ev)
		return append(out, more...), err
	}
	switch e := ev.(type) {
	case Claim:
		return r.onClaim(now, e)
	case PeerOffer:
		return r.onOffer(now, e), nil
	case Leased:
		return r.onLeased(now, e), nil
	case Credit:
		return r.onCredit(now, e), nil
	case ChunkVerified:
		return r.onChunk(now, e), nil
	case Loaded:
		return r.onLoaded(now, e)
	case Release:
		return r.onRelease(now, e), nil
	case Unhold:
		if r.connector != nil {
			return nil, nil
		}
		return r.finish(now, Ended{Aborted, CodeCancelled, e.Detail}, true), nil
	case Cancel:
		return r.onCancel(now, Ended{Aborted, e.Code, e.Detail}), nil
	case Fail:
		if r.state == Ready || r.state == Loading {
			return nil, nil
		}
		return r.finish(now, Ended{Aborted, e.Code, e.Detail}, true), nil
	case EngineGone:
		out := r.finish(now, Ended{Aborted, CodeCancelled, e.Detail}, true)
		if e.Fenced {
			out = r.free(now, out)
		}
		return out, nil
	case PeerUp:
		return r.onUp(now, e), nil
	case PeerDown:
		return r.onDown(now, e), nil
	case PeerAbort:
		return r.onAbort(now, e), nil
	}
	return nil, nil
}

func (r *Receiver) onUp(now Instant, e PeerUp) []Effect {
	if e.Session == r.peer {
		return nil
	}
	var out []Effect
	if r.peer != 0 { // the caller may say so only now
		out = r.onDown(now, PeerDown{r.peer})
	}
	r.peer, r.peerInst = e.Session, e.Instance
	if r.state == Ready || r.state == Loading {
		return out
	}
	if r.offer != nil && r.instance != e.Instance {
		return append(out, r.finish(now, Ended{Aborted, CodePeerGone, "the prefill node's daemon was restarted"}, false)...)
	}
	r.deadline = r.patience
	return append(out, SendClaim{r.peer})
}

func (r *Receiver) onDown(now Instant, e PeerDown) []Effect {
	if e.Session != r.peer || r.peer == 0 {
		return nil
	}
	r.peer = 0
	for i := range r.ranks {
		r.ranks[i].granted, r.ranks[i].credit, r.ranks[i].open = nil, 0, false
	}
	out := r.giveBack(nil, r.given)
	r.asked = 0
	switch r.state {
	case Offered, Receiving:
		r.claimed(now, r.o.Timeouts.Return)
	case Claimed:
		r.missing(now)
	default: // ready or loading: the peer is not needed any more
	}
	return out
}

// claimed waits for an offer, for at most d.
func (r *Receiver) claimed(now Instant, d time.Duration) {
	r.state, r.patience = Claimed, now.Add(d)
	r.deadline = r.patience
	if r.peer == 0 {
		r.missing(now)
	}
}

// missing shortens the wait while there is no session with the peer. What has
// arrived is worth more patience than a transfer that has not begun, which costs
// a client time and may as well be computed here.
func (r *Receiver) missing(now Instant) {
	if r.moved == 0 {
		r.deadline = min(r.patience, now.Add(r.o.Timeouts.Absent))
	}
}

func (r *Receiver) onOffer(now Instant, e PeerOffer) []Effect {
	if e.Session != r.peer || r.peer == 0 {
		return nil
	}
	if r.offer != nil && (r.offer.Tokens != e.Tokens || r.offer.Hash != e.Hash) {
		return []Effect{Violation{e.Session, "OFFER of another prompt under the same id"}}
	}
	if r.state != Claimed {
		return nil
	}
	r.offer, r.instance = &e, r.peerInst
	if why := r.mismatch(); why != "" {
		return r.finish(now, Ended{Aborted, CodeTokenHash, why}, true)
	}
	return r.fetch(now)
}

// mismatch says how the engine's prompt differs from the offered one.
func (r *Receiver) mismatch() string {
	c, o := r.connector, r.offer
	switch {
	case c == nil || o == nil:
		return ""
	case c.Tokens != o.Tokens:
		return fmt.Sprintf("the prefill engine offers %d tokens but the prompt here has %d", o.Tokens, c.Tokens)
	case c.Hash != o.Hash:
		return "the prefill engine's prompt has other tokens than the prompt here"
	}
	return ""
}

func (r *Receiver) onChunk(now Instant, e ChunkVerified) []Effect {
	if r.state != Receiving || e.Session != r.peer || e.Rank < 0 || e.Rank >= len(r.ranks) {
		return nil
	}
	k := &r.ranks[e.Rank]
	got := Set{{Offset: e.Offset, Length: e.Length}}
	if !k.granted.Prefix(k.credit).Has(got[0]) {
		return []Effect{Violation{e.Session, "chunk outside the granted ranges or the credit"}}
	}
	fresh := got.Sub(k.verified).Bytes()
	if fresh == 0 {
		return nil
	}
	k.verified = k.verified.Add(got[0])
	r.moved += fresh
	r.chunks++
	r.deadline = now.Add(r.o.Timeouts.Progress)
	out := r.giveBack(nil, fresh)
	for i := range r.ranks {
		if len(r.missingOf(&r.ranks[i])) > 0 {
			return out
		}
	}
	for i := range r.ranks { // this grant is done: an extension makes a new one
		r.ranks[i].granted, r.ranks[i].credit, r.ranks[i].open = nil, 0, false
	}
	r.asked = 0
	return append(out, r.fetch(now)...)
}

func (r *Receiver) giveBack(out []Effect, n int64) []Effect {
	n = min(n, r.given)
	if n <= 0 {
		return out
	}
	r.given -= n
	return append(out, ReturnBudget{n})
}

func (r *Receiver) becomeReady(now Instant) []Effect {
	r.state, r.deadline = Ready, now.Add(r.o.Timeouts.Load)
	r.verdict = Verdict{Ready: true, From: r.from, Ranges: r.need}
	return []Effect{VerdictReached{r.verdict}}
}

func (r *Receiver) onClaim(now Instant, e Claim) ([]Effect, error) {
	c := r.connector
	switch {
	case c != nil && (c.Tokens != e.Tokens || c.Hash != e.Hash):
		return nil, refuse("conflict", "this id was claimed for another prompt")
	case c != nil && e.From >= r.from:
		return nil, nil // repeated, or longer: the shorter one stands
	case r.ending != nil || r.reported() > 0:
		return nil, refuse("conflict", "a claim cannot change while it is being loaded")
	}
	r.connector = &e
	if why := r.mismatch(); why != "" {
		// The engine was never told that anything is ready, so nobody loads.
		r.connector = nil
		out := r.finish(now, Ended{Aborted, CodeTokenHash, why}, true)
		r.connector = &e
		return out, nil
	}
	switch {
	case c == nil && r.offer == nil && len(r.leased) == 0:
		r.from = e.From // nothing was fetched yet: the engine's word fixes the prefix
		return nil, nil
	case e.From >= r.from:
		if r.state == Ready {
			r.deadline = now.Add(r.o.Timeouts.Load)
		}
		return nil, nil
	}
	r.from = e.From
	switch r.state {
	case Ready:
		r.verdict = Verdict{}
		if r.peer == 0 {
			r.claimed(now, r.o.Timeouts.Return)
			return nil, nil
		}
		return r.fetch(now), nil
	case Offered:
		return r.fetch(now), nil
	default: // receiving: the extension is fetched when the current grant is complete
		return nil, nil
	}
}
