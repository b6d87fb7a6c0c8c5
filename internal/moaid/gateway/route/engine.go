// Package route decides which prefill and which decode engine serve a request.
// It is pure: the caller gives the time, and guards the engines by a lock.
package route

import (
	"slices"
	"time"
)

// Target names an engine.
type Target struct{ Node, Engine string }

func (t Target) String() string { return t.Node + "/" + t.Engine }

// State is what an engine's daemon last said of it.
type State int

// States, worst first.
const (
	Unknown  State = iota // not heard of yet
	Down                  // its daemon cannot be reached
	Absent                // its daemon does not know it
	NotReady              // its daemon knows it, but it cannot serve
	Draining              // it serves what it has
	Ready
)

func (s State) String() string {
	return [...]string{"unknown", "down", "absent", "not_ready", "draining", "ready"}[s]
}

const (
	// tripAfter failures in a row keep requests away for a time: one or two can
	// be the requests' own fault.
	tripAfter = 3
	openMin   = time.Second
	openMax   = 30 * time.Second
	// returnWithin is how long after its last sign an engine may be restarting.
	returnWithin = 40 * time.Second
)

// Engine is an engine as the gateway sees it.
type Engine struct {
	Target
	Outstanding int // our requests that it has now
	Waiting     int // requests of anybody in its queue, as it last said

	state  State
	reason string
	served time.Time // when it was last seen ready
	ending bool      // its daemon ends, and may be restarting
	peers  []string  // nodes that KV can come from and go to; nil if unknown

	failures int // in a row
	openFor  time.Duration
	until    time.Time // closed to requests until then; zero if not tripped
	trial    bool      // one request is finding out whether it recovered
}

// Report takes what a poll showed. reason is for the operator.
func (e *Engine) Report(s State, reason string, waiting int) {
	e.state, e.reason, e.Waiting = s, reason, waiting
}

// Peers takes the nodes with whose daemons the engine's daemon has a session.
// Nil says that it did not tell: then all count as linked.
func (e *Engine) Peers(nodes []string) { e.peers = nodes }

// Linked reports whether KV can come from a node, as far as is known.
func (e *Engine) Linked(node string) bool { return e.peers == nil || slices.Contains(e.peers, node) }

// Ending takes whether its daemon takes no new requests because it ends.
func (e *Engine) Ending(is bool) { e.ending = is }

// Restarting reports whether its daemon said last that it ends, and the engine may
// return with it.
func (e *Engine) Restarting(now time.Time) bool {
	return e.ending && e.state != Ready && e.Returning(now)
}

// Seen notes that it was ready at now.
func (e *Engine) Seen(now time.Time) { e.served = now }

// Returning reports whether an engine that is not ready was so a moment ago, and
// may be restarting. One that drains is not expected back.
func (e *Engine) Returning(now time.Time) bool {
	return e.state != Draining && !e.served.IsZero() && now.Sub(e.served) < returnWithin
}

// State gives the last report.
func (e *Engine) State() (State, string) { return e.state, e.reason }

// Tripped reports whether failures keep requests away now.
func (e *Engine) Tripped(now time.Time) bool {
	return !e.until.IsZero() && (now.Before(e.until) || e.trial)
}

// Usable reports whether a request may be sent there now.
func (e *Engine) Usable(now time.Time) bool { return e.state == Ready && !e.Tripped(now) }

// Begin counts a request. After a trip it is the trial.
func (e *Engine) Begin() {
	e.Outstanding++
	if !e.until.IsZero() {
		e.trial = true
	}
}

// Answered notes that an answer has begun well. It ends the trial: answers take
// long, and others need not wait for the end of this one. Until one has ended well,
// one more failure closes the engine again.
func (e *Engine) Answered() {
	if !e.trial {
		return
	}
	e.failures, e.until, e.trial = tripAfter-1, time.Time{}, false
}

// Outcome of a request, as far as it says something of the engine.
type Outcome int

// Outcomes.
const (
	Neutral Outcome = iota // the client left, or the request was wrong
	Success
	Failure
)

// End counts a request as over.
func (e *Engine) End(now time.Time, o Outcome) {
	e.Outstanding--
	switch o {
	case Success:
		e.failures, e.openFor, e.until, e.trial = 0, 0, time.Time{}, false
	case Failure:
		e.failures++
		if e.failures >= tripAfter || e.trial {
			e.openFor = min(max(2*e.openFor, openMin), openMax)
			e.until, e.trial = now.Add(e.openFor), false
		}
	case Neutral:
		e.trial = false
	}
}
