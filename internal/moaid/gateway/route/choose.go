package route

import "time"

// Pool is a pair's engines, all of which serve one model.
type Pool struct {
	Name    string
	Prefill []*Engine
	Decode  []*Engine
}

// Reasons why there is no prefill engine.
const (
	ReasonNoPrefill   = "no_prefill" // none is configured
	ReasonDown        = "prefill_down"
	ReasonNotReady    = "prefill_not_ready"
	ReasonDraining    = "prefill_draining"
	ReasonCircuitOpen = "prefill_circuit_open"
	ReasonNoDecode    = "pair_without_decode" // prefill is there, but decode only in another pair
)

// Choice is who serves a request.
type Choice struct {
	Prefill *Engine // nil: decode does everything
	Reason  string  // why Prefill is nil, "" if it was not wanted
	Decode  *Engine // nil: nobody can serve the request
	Pool    int     // that Prefill is of, -1 if it is nil
}

// Tried are the engines that already failed a request.
type Tried map[*Engine]bool

// Choose picks the engines for a request. It wants a prefill engine if split is
// set. The least loaded wins, then the one that stands first, so that the same
// state always gives the same choice.
func Choose(now time.Time, pools []Pool, split bool, tried Tried) Choice {
	c := Choice{Pool: -1}
	if split {
		c.Reason = why(now, pools)
		for i, p := range pools {
			if best(now, p.Decode, tried) == nil {
				continue
			}
			if e := best(now, p.Prefill, tried); e != nil && (c.Prefill == nil || less(e, c.Prefill)) {
				c.Prefill, c.Pool, c.Reason = e, i, ""
			}
		}
	}
	c.Decode, _ = ChooseDecode(now, pools, c.Pool, tried)
	return c
}

// ChooseDecode picks a decode engine: in the pool with the index pool if it has
// one, else in any. same says that it is of that pool, so that it may read the
// prefill engine's KV. An engine that tripped is better than none.
func ChooseDecode(now time.Time, pools []Pool, pool int, tried Tried) (e *Engine, same bool) {
	if pool >= 0 {
		if e := best(now, pools[pool].Decode, tried); e != nil {
			return e, true
		}
	}
	for _, p := range pools {
		if b := best(now, p.Decode, tried); b != nil && (e == nil || less(b, e)) {
			e = b
		}
	}
	if e != nil {
		return e, false
	}
	for _, p := range pools {
		for _, d := range p.Decode {
			if d.state == Ready && !tried[d] && (e == nil || less(d, e)) {
				e = d
			}
		}
	}
	return e, false
}

func less(a, b *Engine) bool {
	if a.Outstanding != b.Outstanding {
		return a.Outstanding < b.Outstanding
	}
	return a.Waiting < b.Waiting
}

// best gives the least loaded usable engine, nil if there is none.
func best(now time.Time, es []*Engine, tried Tried) *Engine {
	var b *Engine
	for _, e := range es {
		if e.Usable(now) && !tried[e] && (b == nil || less(e, b)) {
			b = e
		}
	}
	return b
}

// why says why no prefill engine is usable: by the one that is nearest to it.
func why(now time.Time, pools []Pool) string {
	reason, top := ReasonNoPrefill, -1
	for _, p := range pools {
		for _, e := range p.Prefill {
			r, rank := ReasonDown, 0
			switch {
			case e.state == Ready && e.Tripped(now):
				r, rank = ReasonCircuitOpen, 3
			case e.state == Ready:
				r, rank = ReasonNoDecode, 4
			case e.state == Draining:
				r, rank = ReasonDraining, 2
			case e.state == NotReady, e.state == Absent:
				r, rank = ReasonNotReady, 1
			}
			if rank > top {
				reason, top = r, rank
			}
		}
	}
	return reason
}
