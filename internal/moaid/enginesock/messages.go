package enginesock

import "github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"

// Version is the protocol version that Hello carries.
const Version = 1

// DefaultPath is where a daemon listens unless configured otherwise.
const DefaultPath = "/run/moai/engine.sock"

// MaxPacket is the size of the largest packet in bytes.
const MaxPacket = 65536

// SessionKind says which part of an engine a session belongs to.
type SessionKind string

// Kinds of sessions. Each data-parallel replica of an engine has one scheduler
// and a worker a tensor-parallel rank.
const (
	Scheduler SessionKind = "scheduler"
	Worker    SessionKind = "worker"
)

// Code names why a request was refused.
type Code string

// Codes of errors.
const (
	CodeBadRequest    Code = "bad_request"
	CodeUnknownType   Code = "unknown_type"
	CodeVersion       Code = "version"
	CodeUnauthorized  Code = "unauthorized"
	CodeUnknownEngine Code = "unknown_engine"
	CodeFingerprint   Code = "fingerprint"
	CodeGeneration    Code = "generation"
	CodeConflict      Code = "conflict"
	CodeUnknownID     Code = "unknown_id"
	CodeNoRoom        Code = "no_room"
	CodeBadArena      Code = "bad_arena"
	CodeDuplicate     Code = "duplicate"
	CodeDraining      Code = "draining"
	CodeTooMany       Code = "too_many"
	CodeInternal      Code = "internal"
)

// Verdict says what became of a claim.
type Verdict string

// Verdicts of a claim.
const (
	Pending Verdict = "pending" // bytes are not there yet
	Ready   Verdict = "ready"   // every claimed byte lies verified in the extents
	Failed  Verdict = "failed"  // never will; see the failure code
)

// FailureCode names why a claim failed.
type FailureCode string

// Failure codes of a verdict.
const (
	FailUnknownSource FailureCode = "unknown_source"
	FailNotOffered    FailureCode = "not_offered"
	FailTokenHash     FailureCode = "token_hash"
	FailIncompatible  FailureCode = "incompatible"
	FailWithdrawn     FailureCode = "withdrawn"
	FailPeerGone      FailureCode = "peer_gone"
	FailDeadline      FailureCode = "deadline"
	FailNoRoom        FailureCode = "no_room"
	FailCorrupt       FailureCode = "corrupt"
	FailNotPaired     FailureCode = "not_paired"
	FailCancelled     FailureCode = "cancelled"
	FailInexact       FailureCode = "inexact" // a conversion met a value that this engine's format does not have
)

// Outcome says how a transfer ended.
type Outcome string

// Outcomes. Expired and Withdrawn occur on the sending side only.
const (
	Committed Outcome = "committed"
	Aborted   Outcome = "aborted"
	Expired   Outcome = "expired"
	Withdrawn Outcome = "withdrawn"
)

// Extent is a span of arena bytes.
type Extent struct {
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
}

// Endpoint names an engine on a node.
type Endpoint struct {
	Node   string `json:"node"`
	Engine string `json:"engine"`
}

// Request is what a client sends. Every request has a sequence number, by which
// its answer is found.
type Request interface {
	// Type is the packet's "t".
	Type() string
	// SeqNumber is the request's number; positive and ascending in a session.
	SeqNumber() int64
	setSeq(int64)
}

// Head is the part that all requests have.
type Head struct {
	T   string `json:"t"`
	Seq int64  `json:"seq"`
}

// SeqNumber is the request's number.
func (h *Head) SeqNumber() int64 { return h.Seq }

func (h *Head) setSeq(n int64) { h.Seq = n }

// Hello opens a session.
type Hello struct {
	Head
	Version    int         `json:"version"`
	Engine     string      `json:"engine"`
	Generation string      `json:"generation"` // 32 hex digits, new at each start of the replica
	Session    SessionKind `json:"session"`
	Rank       int         `json:"rank"`  // tensor-parallel rank; 0 for the scheduler
	World      int         `json:"world"` // tensor-parallel size
	// DataRank is the replica that the session belongs to, of DataSize; see [Hello.Replicas].
	DataRank    int                 `json:"data_rank"`
	DataSize    int                 `json:"data_size"`
	Fingerprint kvcache.Fingerprint `json:"fingerprint"`
}

// Bounds of what Hello may carry.
const (
	MaxWorld    = 64 // tensor-parallel ranks of a replica
	MaxReplicas = 64 // data-parallel replicas of an engine
)

// Replicas is the number of data-parallel replicas: an engine that says none has one.
func (h *Hello) Replicas() int { return max(1, h.DataSize) }

// Ping says that the client is alive.
type Ping struct{ Head }

// Arena asks for the worker's staging memory; the answer carries a descriptor.
type Arena struct{ Head }

// Adopt gives an arena back to a restarted daemon; it carries the descriptor.
type Adopt struct {
	Head
	Arena string `json:"arena"`
	Bytes int64  `json:"bytes"`
}

// Reserve leases pages for the payload of a prompt of Tokens tokens.
type Reserve struct {
	Head
	ID     string    `json:"id"`
	Tokens int       `json:"tokens"`
	Target *Endpoint `json:"target,omitempty"`
}

// Offer says that the prompt's KV is, or will be, in the reserved pages.
type Offer struct {
	Head
	ID        string `json:"id"`
	Tokens    int    `json:"tokens"`
	TokenHash string `json:"token_hash"`
}

// Withdraw says that the prefill was aborted.
type Withdraw struct {
	Head
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// Stored says that payload bytes of this rank are in the arena. Cumulative. Only
// the rank's own ranges count, which the answer to Reserve names.
type Stored struct {
	Head
	ID     string          `json:"id"`
	Ranges []kvcache.Range `json:"ranges"`
}

// Claim says that the prompt with this id has arrived here.
type Claim struct {
	Head
	ID        string   `json:"id"`
	Tokens    int      `json:"tokens"`
	TokenHash string   `json:"token_hash"`
	FromToken int      `json:"from_token"`
	Source    Endpoint `json:"source"`
}

// Release says that the engine will not load the transfer.
type Release struct {
	Head
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// Loaded says that this rank has copied the bytes to its engine, or could not.
type Loaded struct {
	Head
	ID string `json:"id"`
	OK bool   `json:"ok"`
}

// Stats is load feedback of a replica's scheduler, of the replica alone.
type Stats struct {
	Head
	Waiting       int   `json:"waiting"`
	Running       int   `json:"running"`
	KVBlocksFree  int   `json:"kv_blocks_free"`
	KVBlocksTotal int   `json:"kv_blocks_total"`
	StepMicrosP50 int64 `json:"step_us_p50"`
	StepMicrosP99 int64 `json:"step_us_p99"`
}

// Types of requests, the packet's "t".
const (
	TypeHello    = "hello"
	TypePing     = "ping"
	TypeArena    = "arena"
	TypeAdopt    = "adopt"
	TypeReserve  = "reserve"
	TypeOffer    = "offer"
	TypeWithdraw = "withdraw"
	TypeStored   = "stored"
	TypeClaim    = "claim"
	TypeRelease  = "release"
	TypeLoaded   = "loaded"
	TypeStats    = "stats"
)

// Type is the packet's "t".
func (*Hello) Type() string { return TypeHello }

// Type is the packet's "t".
func (*Ping) Type() string { return TypePing }

// Type is the packet's "t".
func (*Arena) Type() string { return TypeArena }

// Type is the packet's "t".
func (*Adopt) Type() string { return TypeAdopt }

// Type is the packet's "t".
func (*Reserve) Type() string { return TypeReserve }

// Type is the packet's "t".
func (*Offer) Type() string { return TypeOffer }

// Type is the packet's "t".
func (*Withdraw) Type() string { return TypeWithdraw }

// Type is the packet's "t".
func (*Stored) Type() string { return TypeStored }

// Type is the packet's "t".
func (*Claim) Type() string { return TypeClaim }

// Type is the packet's "t".
func (*Release) Type() string { return TypeRelease }

// Type is the packet's "t".
func (*Loaded) Type() string { return TypeLoaded }

// Type is the packet's "t".
func (*Stats) Type() string { return TypeStats }
