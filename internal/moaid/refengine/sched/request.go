package sched

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"sync"
	"time"
)

// TransferParams are a request's and a response's kv_transfer_params.
type TransferParams struct {
	DoRemoteDecode  bool   `json:"do_remote_decode"`
	DoRemotePrefill bool   `json:"do_remote_prefill"`
	TransferID      string `json:"transfer_id,omitempty"`
	TargetNode      string `json:"target_node,omitempty"`
	TargetEngine    string `json:"target_engine,omitempty"`
	SourceNode      string `json:"source_node,omitempty"`
	SourceEngine    string `json:"source_engine,omitempty"`
	RemoteNumTokens int    `json:"remote_num_tokens,omitempty"`
}

// Params say how a request is answered.
type Params struct {
	MaxTokens   int
	IgnoreEOS   bool
	Temperature float64 // 0 is greedy
	Seed        uint64
	HashLogits  bool
	KeepLogits  bool
	Transfer    *TransferParams
	Replica     *int // data-parallel replica that must answer; nil for any
}

// Reason says why a request ended.
type Reason string

// Reasons of an end.
const (
	EndStop   Reason = "stop"
	EndLength Reason = "length"
	EndAbort  Reason = "abort"
	EndError  Reason = "error"
)

// Output is what a request has produced since it was last asked.
type Output struct {
	Tokens       []int
	LogitsSHA256 []string    // a token, if asked for
	Logits       [][]float32 // a token, if asked for
	Ended        Reason      // "" while it goes on
	Err          string      // of EndError: one line, for the client
	Gone         bool        // of EndError: the engine ended, not this request alone
	Transfer     *TransferParams
	Cached       int // prompt tokens that were not computed here
}

// Request is one prompt on its way. Its fields belong to the scheduler's loop,
// except for what Next reads.
type Request struct {
	ID     string
	Prompt []int
	Params Params

	state    state
	tokens   []int // prompt and generated
	computed int   // tokens whose KV is in the blocks
	tables   tables
	cached   int
	settled  bool // loaded, or preempted: the connector is not asked any more
	counted  bool // as recomputed
	since    time.Time
	aborted  bool

	mu     sync.Mutex
	out    Output
	change chan struct{}
}

type state int

const (
	waiting state = iota
	loading
	running
	ended
)

// NewRequest makes a request; Submit starts it.
func NewRequest(id string, prompt []int, p Params) *Request {
	return &Request{ID: id, Prompt: prompt, Params: p, tokens: append([]int(nil), prompt...), change: make(chan struct{}, 1)}
}

// Changed fires when Next has something new.
func (r *Request) Changed() <-chan struct{} { return r.change }

// Next takes what was produced since the last call.
func (r *Request) Next() Output {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.out
	r.out.Tokens, r.out.LogitsSHA256, r.out.Logits = nil, nil, nil
	return o
}

// Since is when the request was submitted.
func (r *Request) Since() time.Time { return r.since }

func (r *Request) produce(f func(*Output)) {
	r.mu.Lock()
	f(&r.out)
	r.mu.Unlock()
	select {
	case r.change <- struct{}{}:
	default:
	}
}

func (r *Request) generated() int { return len(r.tokens) - len(r.Prompt) }

// promptLeft is how many prompt tokens are among the next n to be computed.
func (r *Request) promptLeft(n int) int {
	return max(0, min(r.computed+n, len(r.Prompt))-r.computed)
}

func hashLogits(v []float32) string {
	h := sha256.New()
	var b [4]byte
	for _, x := range v {
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(x))
		h.Write(b[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}
