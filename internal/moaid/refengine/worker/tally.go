package worker

import (
	"sync"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
)

// tally counts the ranks' reports of loads. A request is loaded when every rank
// has loaded it; it has failed when one of them could not, but only after all have
// reported, since until then its blocks are written to.
type tally struct {
	ranks  int
	notify func()

	mu    sync.Mutex
	open  map[string]count
	ended []sched.LoadResult
}

type count struct {
	reports int
	failed  bool
}

func newTally(ranks int, notify func()) *tally {
	return &tally{ranks: ranks, notify: notify, open: map[string]count{}}
}

// report takes one rank's report of a request's load.
func (t *tally) report(l sched.LoadResult) {
	t.mu.Lock()
	c := t.open[l.Request]
	c.reports++
	c.failed = c.failed || !l.OK
	t.open[l.Request] = c
	all := c.reports == t.ranks
	if all {
		delete(t.open, l.Request)
		t.ended = append(t.ended, sched.LoadResult{Request: l.Request, OK: !c.failed})
	}
	t.mu.Unlock()
	if all {
		t.notify()
	}
}

// TakeLoads gives the loads that have ended on every rank since the last call.
func (t *tally) TakeLoads() []sched.LoadResult {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.ended
	t.ended = nil
	return out
}
