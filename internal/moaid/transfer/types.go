package transfer

import (
	"fmt"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// Instant is a monotonic time in nanoseconds since an origin of the caller's
// choice. Zero means none.
type Instant int64

// Add gives the instant d later.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub gives the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Session names a control session with a peer. Zero means none.
type Session uint64

// Instance names a run of a peer's daemon. A new one has forgotten everything.
type Instance [16]byte

// Code says why a transfer failed. The values are those of the protocols.
type Code string

// Codes that the machines give. Callers may pass others with [Fail].
const (
	CodeCancelled  Code = "cancelled"
	CodeWithdrawn  Code = "withdrawn"
	CodeNotOffered Code = "not_offered"
	CodeTokenHash  Code = "token_hash"
	CodeDeadline   Code = "deadline"
	CodeNoRoom     Code = "no_room"
	CodeLoadFailed Code = "load_failed"
	CodeNotNeeded  Code = "not_needed"
	CodePeerGone   Code = "peer_gone"
	CodeProtocol   Code = "protocol"
)

// State is where a machine is.
type State string

// States of the two machines.
const (
	Reserved  State = "reserved"
	Offered   State = "offered"
	Claimed   State = "claimed"
	Sending   State = "sending"
	Sent      State = "sent"
	Receiving State = "receiving"
	Ready     State = "ready"
	Loading   State = "loading"
	Committed State = "committed"
	Aborted   State = "aborted"
	Expired   State = "expired"
	Withdrawn State = "withdrawn"
)

// Terminal reports whether nothing more happens in s.
func (s State) Terminal() bool {
	return s == Committed || s == Aborted || s == Expired || s == Withdrawn
}

// Timeouts bound every state. None may be zero.
type Timeouts struct {
	Reserve  time.Duration // reserved without offer
	Offer    time.Duration // offered without claim
	Claim    time.Duration // claimed without offer, and claimed without grant
	Progress time.Duration // receiver: granted without verified bytes; the sender waits twice as long
	Load     time.Duration // ready without every rank's report; the sender waits half as long again
	Return   time.Duration // for a lost peer to return, when something of the transfer has arrived
	Absent   time.Duration // receiver: without a session with the peer, while nothing has arrived
	Grace    time.Duration // for engines to stop touching pages of an ended transfer
	Retain   time.Duration // an ended transfer is remembered
}

// DefaultTimeouts are those of the protocol document.
func DefaultTimeouts() Timeouts {
	return Timeouts{
		Reserve: 60 * time.Second, Offer: 60 * time.Second, Claim: 60 * time.Second, Progress: 30 * time.Second,
		Load: 60 * time.Second, Return: 30 * time.Second, Absent: 3 * time.Second, Grace: 5 * time.Second, Retain: 60 * time.Second,
	}
}

// Refused answers a request that a machine does not accept.
type Refused struct {
	Code string // of the engine socket's errors: conflict, unknown_id, duplicate, bad_request
	Why  string
}

func (r *Refused) Error() string { return r.Why + " (" + r.Code + ")" }

func refuse(code, format string, args ...any) *Refused {
	return &Refused{Code: code, Why: fmt.Sprintf(format, args...)}
}

// Effect is something that the caller must do.
type Effect interface{ effect() }

// Effects on the peer, over the named session.
type (
	// SendOffer tells the peer what is offered.
	SendOffer struct{ Session Session }
	// SendClaim tells the peer that the prompt arrived here.
	SendClaim struct{ Session Session }
	// SendGrant asks for ranges of a rank's payload, Credit bytes of them at once.
	SendGrant struct {
		Session Session
		Rank    int
		Ranges  Set
		Credit  int64
	}
	// SendCredit raises the credit of a rank.
	SendCredit struct {
		Session Session
		Rank    int
		Credit  int64
	}
	// SendCommit tells the peer that the engine has loaded everything.
	SendCommit struct{ Session Session }
	// SendAbort ends the transfer on the peer.
	SendAbort struct {
		Session Session
		Code    Code
		Detail  string
	}
	// SendChunk asks to send payload bytes of a rank of the claimant; the answer is [ChunkSent].
	SendChunk struct {
		Session Session
		Rank    int
		Offset  int64
		Length  int64
	}
	// Violation says that the peer broke the protocol: its session must close.
	Violation struct {
		Session Session
		Why     string
	}
)

// Effects on this host.
type (
	// LeasePages asks for pages for Ranges on every rank; the answer is [Leased].
	LeasePages struct{ Ranges Set }
	// WantCredit says that Bytes more may be granted in all; the answer is [Credit].
	WantCredit struct{ Bytes int64 }
	// ReturnBudget gives back in-flight bytes that were given by [Credit].
	ReturnBudget struct{ Bytes int64 }
	// VerdictReached says that the transfer became ready or failed.
	VerdictReached struct{ Verdict Verdict }
	// Ended is the one end of a transfer.
	Ended struct {
		Outcome State
		Code    Code // empty for Committed
		Detail  string
	}
	// FreePages says that no engine uses the pages any more.
	FreePages struct{}
)

func (SendOffer) effect()      {}
func (SendClaim) effect()      {}
func (SendGrant) effect()      {}
func (SendCredit) effect()     {}
func (SendCommit) effect()     {}
func (SendAbort) effect()      {}
func (SendChunk) effect()      {}
func (Violation) effect()      {}
func (LeasePages) effect()     {}
func (WantCredit) effect()     {}
func (ReturnBudget) effect()   {}
func (VerdictReached) effect() {}
func (Ended) effect()          {}
func (FreePages) effect()      {}

// Verdict is the receiver's answer to a claim.
type Verdict struct {
	Ready  bool // false with Code "" means pending
	From   int  // ready: tokens that the engine said to have itself
	Ranges Set  // ready: payload ranges that are in the pages, the same on every rank
	Code   Code // failed
	Detail string
}

// Pending reports whether there is no verdict yet.
func (v Verdict) Pending() bool { return !v.Ready && v.Code == "" }

// Event is something that happened.
type Event interface{ event() }

// Events of either machine.
type (
	// Tick says only that time has passed.
	Tick struct{}
	// PeerUp says that a control session with the peer is there.
	PeerUp struct {
		Session  Session
		Instance Instance
	}
	// PeerDown says that a session is gone and no chunk of it can arrive.
	PeerDown struct{ Session Session }
	// PeerAbort is the peer's ABORT.
	PeerAbort struct {
		Session Session
		Code    Code
		Detail  string
	}
	// Cancel ends the transfer from this side: management, or a gateway whose client left.
	Cancel struct {
		Code   Code
		Detail string
	}
	// EngineGone says that the local engine's generation is over. Fenced means
	// that its processes are dead, so that nothing touches the pages any more.
	EngineGone struct {
		Fenced bool
		Detail string
	}
)

// Events of the sender.
type (
	// Offer is the engine's offer.
	Offer struct {
		Tokens int
		Hash   string
	}
	// Stored says that payload bytes of a rank of the engine are in the pages.
	Stored struct {
		Rank   int
		Ranges []kvcache.Range
	}
	// Withdraw is the engine's end of the offer.
	Withdraw struct{ Detail string }
	// PeerClaim is the peer's CLAIM.
	PeerClaim struct {
		Session  Session
		Claimant string // node/engine
		Lifetime time.Duration
		View     View // of the claimant
	}
	// PeerGrant is the peer's GRANT, for a rank of the claimant.
	PeerGrant struct {
		Session Session
		Rank    int
		Ranges  []kvcache.Range
		Credit  int64
	}
	// PeerCredit is the peer's CREDIT.
	PeerCredit struct {
		Session Session
		Rank    int
		Credit  int64
	}
	// PeerCommit is the peer's COMMIT.
	PeerCommit struct{ Session Session }
	// ChunkSent answers SendChunk. A chunk that failed costs its session.
	ChunkSent struct {
		Session Session
		Rank    int
		Offset  int64
		Length  int64
		Failed  bool
	}
)

// Events of the receiver.
type (
	// Claim is the engine's claim.
	Claim struct {
		Tokens int
		Hash   string
		From   int
	}
	// PeerOffer is the peer's OFFER.
	PeerOffer struct {
		Session Session
		Tokens  int
		Hash    string
	}
	// Leased answers LeasePages. Not OK means no room yet; the caller repeats OK
	// when there is.
	Leased struct{ OK bool }
	// Credit allows Bytes more in flight.
	Credit struct{ Bytes int64 }
	// ChunkVerified says that a chunk's bytes are in the pages and its check passed.
	ChunkVerified struct {
		Session Session
		Rank    int
		Offset  int64
		Length  int64
	}
	// Loaded is a worker's report.
	Loaded struct {
		Rank int
		OK   bool
	}
	// Release is the engine's word that it will not load. Loading means that it
	// has told its workers to: the pages stay until they have reported.
	Release struct {
		Detail  string
		Loading bool
	}
	// Unhold says that the held request is gone: it ends a claim that no engine made.
	Unhold struct{ Detail string }
	// Fail ends the transfer with a verdict of the caller's: incompatible, not_paired …
	Fail struct {
		Code   Code
		Detail string
	}
)

func (Tick) event()          {}
func (PeerUp) event()        {}
func (PeerDown) event()      {}
func (PeerAbort) event()     {}
func (Cancel) event()        {}
func (EngineGone) event()    {}
func (Offer) event()         {}
func (Stored) event()        {}
func (Withdraw) event()      {}
func (PeerClaim) event()     {}
func (PeerGrant) event()     {}
func (PeerCredit) event()    {}
func (PeerCommit) event()    {}
func (ChunkSent) event()     {}
func (Claim) event()         {}
func (PeerOffer) event()     {}
func (Leased) event()        {}
func (Credit) event()        {}
func (ChunkVerified) event() {}
func (Loaded) event()        {}
func (Release) event()       {}
func (Unhold) event()        {}
func (Fail) event()          {}
