package sched

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/metrics"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// Config sizes a scheduler.
type Config struct {
	Blocks           int // of KV
	MaxBatchedTokens int // computed in a step
	MaxSeqs          int // in a batch
	MaxTokens        int // of prompt and answer together
}

// Scheduler runs requests. All but Submit, Abort, Wake and Stats belong to Run.
type Scheduler struct {
	cfg     Config
	fp      kvcache.Fingerprint
	workers Workers
	conn    Connector // nil without one
	met     *metrics.Set
	gauges  metrics.Gauges

	mu      sync.Mutex
	inbox   []*Request
	aborts  []*Request
	stopped bool
	wake    chan struct{}
	stats   Stats
	idle    chan struct{} // holds one token after the last request has ended

	pool    *pool
	waiting []*Request // first come, first served; preempted ones at the front
	loading []*Request
	running []*Request
	steps   steps
}

// Stats is what a scheduler is doing.
type Stats struct {
	Waiting, Running        int
	BlocksFree, BlocksTotal int
	StepP50, StepP99        time.Duration
}

// ErrStopped says that the engine takes no more requests.
var ErrStopped = errors.New("the engine is stopping")

// New makes a scheduler of an engine whose cache has the given format; replica is
// its number among the engine's. conn is nil without a KV connector.
func New(cfg Config, fp kvcache.Fingerprint, replica int, workers Workers, conn Connector, met *metrics.Set) *Scheduler {
	s := &Scheduler{cfg: cfg, fp: fp, workers: workers, conn: conn, met: met, gauges: met.Replica(replica),
		wake: make(chan struct{}, 1), idle: make(chan struct{}, 1), pool: newPool(cfg.Blocks), stats: Stats{BlocksFree: cfg.Blocks, BlocksTotal: cfg.Blocks}}
	s.gauges.BlocksTotal.Set(float64(cfg.Blocks))
	return s
}

// Fits reports why a request can never run here.
func (s *Scheduler) Fits(prompt, maxTokens int) error {
	if n := prompt + maxTokens; n > s.cfg.MaxTokens {
		return fmt.Errorf("%d prompt tokens and max_tokens %d are more than the model's %d positions", prompt, maxTokens, s.cfg.MaxTokens)
	}
	if n := mostBlocks(&s.fp, prompt+maxTokens, s.cfg.MaxBatchedTokens); n > s.cfg.Blocks {
		return fmt.Errorf("%d prompt tokens and max_tokens %d need %d KV blocks, and the engine has %d", prompt, maxTokens, n, s.cfg.Blocks)
	}
	return nil
}

// Submit queues a request.
func (s *Scheduler) Submit(r *Request) error {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return ErrStopped
	}
	r.since = time.Now()
	r.tables = newTables(&s.fp)
	s.inbox = append(s.inbox, r)
	s.mu.Unlock()
	s.met.Requests.Inc()
	s.Wake()
	return nil
}

// Abort ends a request in whatever state it is; its client has gone.
func (s *Scheduler) Abort(r *Request) {
	s.mu.Lock()
	s.aborts = append(s.aborts, r)
	s.mu.Unlock()
	s.Wake()
}

// Wake makes the loop look again at what it waits for.
func (s *Scheduler) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Stats is a recent picture.
func (s *Scheduler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Idle gives one token each time that the last request has ended: what Stats said
// before that would keep requests away from an engine that has nothing to do.
func (s *Scheduler) Idle() <-chan struct{} { return s.idle }

// idleCheck bounds how long the loop sleeps while requests wait, since deadlines
// pass without an event.
const idleCheck = 50 * time.Millisecond

// Run steps until ctx ends or the workers fail, which is the error, then ends every
// request with an error.
func (s *Scheduler) Run(ctx context.Context) error {
	// What failed is the caller's to log: clients have no use for processes and paths.
	why := "the engine was stopped; send the request again"
	err := s.loop(ctx)
	if err != nil {
		why = "the engine has failed; send the request again"
	}
	s.mu.Lock()
	s.stopped = true
	inbox := s.inbox
	s.inbox = nil
	s.mu.Unlock()
	for _, list := range [][]*Request{inbox, s.waiting, s.loading, s.running} {
		for _, r := range list {
			r.produce(func(o *Output) { o.Ended, o.Err, o.Gone = EndError, why, true })
		}
	}
	return err
}

func (s *Scheduler) loop(ctx context.Context) error {
	for ctx.Err() == nil {
		now := time.Now()
		s.receive(now)
		busy, err := s.step(now)
		if err != nil {
			return err
		}
		s.observe()
		if busy {
			continue
		}
		var check <-chan time.Time
		if len(s.waiting)+len(s.loading) > 0 {
			check = time.After(idleCheck)
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-check:
		}
	}
	return nil
}

// receive takes in new requests, aborts, and the workers' reports.
func (s *Scheduler) receive(now time.Time) {
	s.mu.Lock()
	inbox, aborts := s.inbox, s.aborts
	s.inbox, s.aborts = nil, nil
	s.mu.Unlock()
	for _, r := range inbox {
		s.waiting = append(s.waiting, r)
		if s.conn != nil {
			s.conn.Arrived(r, now)
		}
	}
	for _, r := range aborts {
		s.abort(r)
	}
	for _, l := range s.workers.TakeLoads() {
		s.loaded(l)
	}
}

func (s *Scheduler) abort(r *Request) {
	if r.state == ended || r.aborted {
		return
	}
	r.aborted = true
	if r.state == loading { // the blocks are being written to: they stay until the worker reports
		if s.conn != nil {
			s.conn.Finished(r, true)
		}
		return
	}
	s.end(r, EndAbort, "")
}

func (s *Scheduler) loaded(l LoadResult) {
	i := slices.IndexFunc(s.loading, func(r *Request) bool { return r.ID == l.Request })
	if i < 0 {
		return
	}
	r := s.loading[i]
	s.loading = slices.Delete(s.loading, i, i+1)
	if r.aborted {
		r.tables.release(s.pool)
		r.state = ended
		s.met.Finished.WithLabelValues(string(EndAbort)).Inc()
		r.produce(func(o *Output) { o.Ended = EndAbort })
		return
	}
	s.conn.Loaded(r, l.OK)
	r.state = waiting
	s.waiting = slices.Insert(s.waiting, 0, r)
	if l.OK {
		// All but the last token: its logits are what the answer begins with.
		r.computed = len(r.Prompt) - 1
		r.cached, r.settled = r.computed, true
		s.met.PromptTransferred.Add(float64(len(r.Prompt)))
		return
	}
	r.tables.release(s.pool)
}

// end finishes a request that is not loading.
func (s *Scheduler) end(r *Request, why Reason, message string) {
	remove := func(list []*Request) []*Request {
		return slices.DeleteFunc(list, func(x *Request) bool { return x == r })
	}
	s.waiting, s.running = remove(s.waiting), remove(s.running)
	r.tables.release(s.pool)
	r.state = ended
	var params *TransferParams
	if s.conn != nil {
		params = s.conn.Finished(r, why == EndAbort || why == EndError)
	}
	s.met.Finished.WithLabelValues(string(why)).Inc()
	r.produce(func(o *Output) { o.Ended, o.Err, o.Transfer, o.Cached = why, message, params, r.cached })
}

func (s *Scheduler) observe() {
	s.gauges.Waiting.Set(float64(len(s.waiting) + len(s.loading)))
	s.gauges.Running.Set(float64(len(s.running)))
	s.gauges.BlocksFree.Set(float64(len(s.pool.free)))
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.stats.Waiting + s.stats.Running
	s.stats.Waiting, s.stats.Running = len(s.waiting)+len(s.loading), len(s.running)
	s.stats.BlocksFree = len(s.pool.free)
	s.stats.StepP50, s.stats.StepP99 = s.steps.quantiles()
	if was > 0 && s.stats.Waiting+s.stats.Running == 0 {
		select {
		case s.idle <- struct{}{}:
		default:
		}
	}
}

func isEOS(token int) bool { return token == refmodel.EOS }
