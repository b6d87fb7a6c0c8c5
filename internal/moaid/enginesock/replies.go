package enginesock

import (
	"fmt"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// Reply is what a daemon sends: an answer (OK, Error) or an event (Room,
// Released, VerdictEvent, Closed).
type Reply interface {
	// Type is the packet's "t".
	Type() string
	setType()
}

// OK answers a request that succeeded. Which fields are set depends on the
// request; all others are absent.
type OK struct {
	T   string `json:"t"`
	Seq int64  `json:"seq"`

	LeaseMillis int64  `json:"lease_ms,omitempty"`    // hello
	MaxWaiting  int    `json:"max_waiting,omitempty"` // hello: early requests that the engine should hold at most
	Instance    string `json:"instance,omitempty"`    // hello: of the daemon; another one has forgotten all transfers

	Node              string `json:"node,omitempty"`                // hello: name of the daemon's node, as decode requests carry it
	OnTransferFailure string `json:"on_transfer_failure,omitempty"` // hello: as registered, recompute or fail; absent if not said

	Arena string `json:"arena,omitempty"` // arena, adopt
	Bytes int64  `json:"bytes,omitempty"` // arena, adopt

	DeadlineMillis int64 `json:"deadline_ms,omitempty"` // reserve: time until the offer must be made

	// RankRanges is of reserve: for each rank the payload ranges that this rank
	// alone stores ([kvcache.Fingerprint.Own]); their concatenation lies in the
	// rank's list of Extents. Both are empty for a rank that has only what a lower
	// rank has too.
	RankRanges [][]kvcache.Range `json:"rank_ranges,omitempty"`

	ClaimState // claim; Extents also of reserve
}

// ClaimState is what a daemon says of a claim.
type ClaimState struct {
	Verdict   Verdict         `json:"verdict,omitempty"`
	FromToken int             `json:"from_token,omitempty"`
	Ranges    []kvcache.Range `json:"ranges,omitempty"`  // of the payload, the same of every rank; their concatenation lies in the rank's extents
	Extents   [][]Extent      `json:"extents,omitempty"` // a list a rank of the replica
	Code      FailureCode     `json:"code,omitempty"`    // of a failed verdict
	Reason    string          `json:"reason,omitempty"`
}

// Error answers a request that was refused.
type Error struct {
	T       string `json:"t"`
	Seq     int64  `json:"seq"`
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Retry   bool   `json:"retry"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%s)", e.Message, e.Code) }

// Is makes errors.Is(err, &Error{Code: c}) compare codes only.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Room says that pages became free after a no_room.
type Room struct {
	T string `json:"t"`
}

// Released tells the sending scheduler that a reserved id has ended; from now on
// its pages belong to others. Exactly once an id.
type Released struct {
	T       string  `json:"t"`
	ID      string  `json:"id"`
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason,omitempty"`
}

// VerdictEvent tells the receiving scheduler that its claim is ready or failed.
type VerdictEvent struct {
	T  string `json:"t"`
	ID string `json:"id"`
	ClaimState
}

// Closed tells the receiving scheduler that a claimed id has ended.
type Closed struct {
	T       string  `json:"t"`
	ID      string  `json:"id"`
	Outcome Outcome `json:"outcome"`
}

// Types of replies, the packet's "t".
const (
	TypeOK       = "ok"
	TypeError    = "error"
	TypeRoom     = "room"
	TypeReleased = "released"
	TypeVerdict  = "verdict"
	TypeClosed   = "closed"
)

// Type is the packet's "t".
func (*OK) Type() string { return TypeOK }

// Type is the packet's "t".
func (*Error) Type() string { return TypeError }

// Type is the packet's "t".
func (*Room) Type() string { return TypeRoom }

// Type is the packet's "t".
func (*Released) Type() string { return TypeReleased }

// Type is the packet's "t".
func (*VerdictEvent) Type() string { return TypeVerdict }

// Type is the packet's "t".
func (*Closed) Type() string { return TypeClosed }

func (m *OK) setType()           { m.T = TypeOK }
func (e *Error) setType()        { e.T = TypeError }
func (m *Room) setType()         { m.T = TypeRoom }
func (m *Released) setType()     { m.T = TypeReleased }
func (m *VerdictEvent) setType() { m.T = TypeVerdict }
func (m *Closed) setType()       { m.T = TypeClosed }
