package sched

import (
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
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
	// BuildMeta gives the worker's orders of this step.
	BuildMeta(scheduled []Scheduled) Meta
	// Loaded tells that every rank has reported.
	Loaded(r *Request, ok bool)
	// Finished tells of a request's end, and gives what its response carries.
	Finished(r *Request, aborted bool) *TransferParams
}

// Worker is a rank's side of a KV connector.
type Worker interface {
	// Step carries out orders: stores before it returns, loads asynchronously. It
	// runs after the step's computation and before any block changes hands.
	Step(m Meta)
	// TakeLoads gives the loads that ended since the last call, each once.
	TakeLoads() []LoadResult
}

// Scheduled is what one step computes of a request.
type Scheduled struct {
	Request *Request
	From    int // tokens in the cache before the step
	To      int // and after it
	Blocks  [][]int
}

// Store orders that blocks which the step completed are copied to the arena.
type Store struct {
	ID       string
	Instance string // of the daemon whose extents they are
	Tokens   int    // of the prompt
	From, To int
	Extents  []enginesock.Extent
	Blocks   [][]int
}

// Load orders that payload bytes are copied from the arena to blocks.
type Load struct {
	ID       string // of the transfer
	Request  string
	Instance string
	Tokens   int
	Ranges   []kvcache.Range
	Extents  []enginesock.Extent
	Blocks   [][]int
}

// Meta is what a step's scheduler tells its workers.
type Meta struct {
	Stores []Store
	Loads  []Load
}

// LoadResult is a rank's report.
type LoadResult struct {
	Request string
	OK      bool
}
