package sched

import (
	"slices"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/transformer"
)

// step computes one batch and reports whether there was anything to do. A step
// without computation still carries orders to the workers.
func (s *Scheduler) step(now time.Time) (bool, error) {
	plan := s.plan(now)
	var logits [][]float32
	if len(plan) > 0 {
		began := time.Now()
		var err error
		if logits, err = s.workers.Compute(chunks(plan)); err != nil {
			return false, err
		}
		took := time.Since(began)
		s.met.StepSeconds.Observe(took.Seconds())
		s.steps.add(took)
	}
	if s.conn != nil {
		if m := s.conn.BuildMeta(plan); !m.Empty() {
			if err := s.workers.Orders(m); err != nil {
				return false, err
			}
		}
	}
	for i, p := range plan {
		s.advance(p, logits[i])
	}
	return len(plan) > 0, nil
}

func chunks(plan []Scheduled) []transformer.Chunk {
	out := make([]transformer.Chunk, len(plan))
	for i, p := range plan {
		out[i] = transformer.Chunk{Tokens: p.Request.tokens[p.From:p.To], Start: p.From, Tables: p.Blocks, Logits: p.To == len(p.Request.tokens)}
	}
	return out
}

// plan chooses what this step computes: first a token of each running request,
// then chunks of those that are still in their prompt, then of waiting ones.
func (s *Scheduler) plan(now time.Time) []Scheduled {
	budget := s.cfg.MaxBatchedTokens
	var plan []Scheduled
	// Those that generate come before those that are in their prompt.
	order := slices.Clone(s.running)
	slices.SortStableFunc(order, func(a, b *Request) int {
		return min(2, len(a.tokens)-a.computed) - min(2, len(b.tokens)-b.computed)
	})
	for _, r := range order {
		if r.state != running || budget == 0 {
			continue
		}
		n := min(budget, len(r.tokens)-r.computed)
		if !s.makeRoom(r, n, &plan, &budget) {
			continue
		}
		plan = append(plan, s.schedule(r, n))
		budget -= n
	}
	short := false // of blocks: those behind wait too, or the first would starve, except for those that hold blocks
	for _, r := range slices.Clone(s.waiting) {
		if budget == 0 || len(s.running)+len(s.loading) >= s.cfg.MaxSeqs {
			break
		}
		if short && !r.tables.held() {
			continue
		}
		if r.computed == 0 && s.conn != nil && !r.settled {
			proceed, full := s.consult(r, now)
			short = short || full
			if !proceed {
				continue
			}
		}
		n := min(budget, len(r.tokens)-r.computed)
		if r.tables.missing(r.computed+n) > len(s.pool.free) {
			short = true
			continue
		}
		s.waiting = slices.DeleteFunc(s.waiting, func(x *Request) bool { return x == r })
		r.state = running
		s.running = append(s.running, r)
		plan = append(plan, s.schedule(r, n))
		budget -= n
	}
	return plan
}

// consult asks the connector about a request that has nothing computed. full
// says that it could be loaded but for lack of blocks.
func (s *Scheduler) consult(r *Request, now time.Time) (proceed, full bool) {
	m := s.conn.Match(r, now)
	switch m.Kind {
	case MatchNotYet:
		return false, false
	case MatchFail:
		s.end(r, EndError, "KV transfer failed: "+m.Reason)
		return false, false
	case MatchLoad:
		pl, err := s.fp.PayloadFor(len(r.Prompt))
		if err != nil || forPayload(pl) > len(s.pool.free) {
			return false, err == nil
		}
		s.load(r, pl)
		return false, false
	case MatchNone:
	}
	if m.Reason != "" && !r.counted {
		r.counted = true
		s.met.Recomputes.WithLabelValues(m.Reason).Inc()
	}
	return true, false
}

func (s *Scheduler) load(r *Request, pl kvcache.Payload) {
	r.tables.fill(s.pool, pl)
	s.waiting = slices.DeleteFunc(s.waiting, func(x *Request) bool { return x == r })
	r.state = loading
	s.loading = append(s.loading, r)
	s.conn.Allocated(r, r.tables.snapshot())
}

func (s *Scheduler) schedule(r *Request, n int) Scheduled {
	r.tables.grow(s.pool, r.computed+n)
	return Scheduled{Request: r, From: r.computed, To: r.computed + n, Blocks: r.tables.snapshot()}
}

// makeRoom finds blocks for n more tokens of a running request, if need be by
// taking those of the youngest running ones. It reports whether r still runs.
func (s *Scheduler) makeRoom(r *Request, n int, plan *[]Scheduled, budget *int) bool {
	for r.tables.missing(r.computed+n) > len(s.pool.free) {
		victim := s.running[len(s.running)-1]
		if i := slices.IndexFunc(*plan, func(p Scheduled) bool { return p.Request == victim }); i >= 0 {
			*budget += (*plan)[i].To - (*plan)[i].From
			*plan = slices.Delete(*plan, i, i+1)
		}
		s.preempt(victim)
		if victim == r {
			return false
		}
	}
	return true
}

// preempt takes a request's blocks; it is computed again from its first token,
// whether its KV was computed here or loaded.
func (s *Scheduler) preempt(r *Request) {
	r.tables.release(s.pool)
	r.computed, r.cached, r.settled, r.state = 0, 0, true, waiting
	s.running = slices.DeleteFunc(s.running, func(x *Request) bool { return x == r })
	s.waiting = slices.Insert(s.waiting, 0, r)
	s.met.Preemptions.Inc()
	s.met.Recomputes.WithLabelValues("preempted").Inc()
}

// advance notes what a step computed of one request.
func (s *Scheduler) advance(p Scheduled, logits []float32) {
	r := p.Request
	s.met.PromptComputed.Add(float64(r.promptLeft(p.To - p.From)))
	r.computed = p.To
	r.tables.slide(s.pool, r.computed)
	if len(logits) == 0 {
		return
	}
	token := sample(logits, r.Params.Temperature, r.Params.Seed, r.generated())
	r.tokens = append(r.tokens, token)
	s.met.Generated.Inc()
	hash := ""
	if r.Params.HashLogits {
		hash = hashLogits(logits)
	}
	r.produce(func(o *Output) {
		o.Tokens = append(o.Tokens, token)
		o.Cached = r.cached
		if hash != "" {
			o.LogitsSHA256 = append(o.LogitsSHA256, hash)
		}
		if r.Params.KeepLogits {
			o.Logits = append(o.Logits, slices.Clone(logits))
		}
	})
	switch {
	case isEOS(token) && !r.Params.IgnoreEOS:
		s.end(r, EndStop, "")
	case r.generated() >= r.Params.MaxTokens:
		s.end(r, EndLength, "")
	}
}

// steps remembers how long recent steps took.
type steps struct {
	ring [128]time.Duration
	n    int
}

func (s *steps) add(d time.Duration) {
	s.ring[s.n%len(s.ring)] = d
	s.n++
}

func (s *steps) quantiles() (p50, p99 time.Duration) {
	n := min(s.n, len(s.ring))
	if n == 0 {
		return 0, 0
	}
	sorted := slices.Clone(s.ring[:n])
	slices.Sort(sorted)
	return sorted[n/2], sorted[min(n-1, n*99/100)]
}
