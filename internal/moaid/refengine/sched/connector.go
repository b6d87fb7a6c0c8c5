package sched

import (
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/transformer"
)

// MatchKind is a connector's answer about a request that has nothing computed.
type MatchKind int

// Answers of a connector.
const (
	MatchNone   MatchKind = iota // compute it here
	MatchNotYet                  // ask again; holds nothing
	MatchLoad                    // the whole prompt can be loaded
	MatchFail                    // end the request with an error
)

// Match is a connector's answer. Reason is why announced KV is not used, "" if
// none was announced.
type Match struct {
	Kind   MatchKind
	Reason string
}

// Connector is the scheduler's side of a KV connector. It is called from the
// scheduler's loop only, and never waits.
type Connector interface {
	// Arrived tells of a new request.
	Arrived(r *Request, now time.Time)
	// Match has no effect: it may be called any number of times.
	Match(r *Request, now time.Time) Match
	// Allocated gives the blocks into which a request is to be loaded.
	Allocated(r *Request, blocks [][]int)
	// BuildMeta gives the workers' orders of this step.
	BuildMeta(scheduled []Scheduled) Meta
	// Loaded tells that every rank has reported.
	Loaded(r *Request, ok bool)
	// Finished tells of a request's end, and gives what its response carries.
	Finished(r *Request, aborted bool) *TransferParams
}

// Workers are the ranks that compute a scheduler's steps, with their sides of the
// KV connector. Calls come from the scheduler's loop only. An error is final: a
// rank is gone, and with it its part of the cache.
type Workers interface {
	// Compute runs the chunks on every rank and gives logits by chunk.
	Compute(chunks []transformer.Chunk) ([][]float32, error)
	// Orders carries out a step's orders on every rank: stores before anything that
	// is called later is computed, so that blocks may change hands at once; loads
	// asynchronously.
	Orders(m Meta) error
	// TakeLoads gives the loads that have ended on every rank since the last call,
	// each once.
	TakeLoads() []LoadResult
}

// Scheduled is what one step computes of a request.
type Scheduled struct {
	Request *Request
	From    int // tokens in the cache before the step
	To      int // and after it
	Blocks  [][]int
}

// Store orders that blocks which the step completed are copied to the arenas.
type Store struct {
	ID       string
	Instance string // of the daemon whose extents they are
	Tokens   int    // of the prompt
	From, To int
	Ranges   [][]kvcache.Range     // of the payload, by rank: what that rank stores
	Extents  [][]enginesock.Extent // by rank; their concatenation is the rank's ranges
	Blocks   [][]int
}

// Load orders that payload bytes are copied from the arenas to blocks.
type Load struct {
	ID       string // of the transfer
	Request  string
	Instance string
	Tokens   int
	Ranges   []kvcache.Range       // of the payload, for every rank
	Extents  [][]enginesock.Extent // by rank
	Blocks   [][]int
}

// Meta is what a step's scheduler tells its workers. Every rank gets all of it and
// takes what is its own.
type Meta struct {
	Stores []Store
	Loads  []Load
}

// Empty reports whether there is nothing to do.
func (m Meta) Empty() bool { return len(m.Stores)+len(m.Loads) == 0 }

// LoadResult is a report of how a request's load ended.
type LoadResult struct {
	Request string
	OK      bool
}
