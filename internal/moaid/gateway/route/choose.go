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
	ReasonLinkDown    = "link_down"           // both are there, and no KV can come from one to the other
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
// set, and then a decode engine that KV can come to from there. The least loaded
// wins, then the one that stands first, so that the same state always gives the
// same choice.
func Choose(now time.Time, pools []Pool, split bool, tried Tried) Choice {
	c := Choice{Pool: -1}
	if split {
		c.Reason = why(now, pools)
		for i, p := range pools {
			e := best(now, p.Prefill, tried, func(e *Engine) bool { return best(now, p.Decode, tried, linkedTo(e)) != nil })
			switch {
			case e != nil && (c.Prefill == nil || less(e, c.Prefill)):
				c.Prefill, c.Pool, c.Reason = e, i, ""
			case c.Prefill == nil && best(now, p.Prefill, tried, nil) != nil && best(now, p.Decode, tried, nil) != nil:
				c.Reason = ReasonLinkDown
			}
		}
	}
	c.Decode, _ = ChooseDecode(now, pools, c.Pool, c.Prefill, tried)
	return c
}

// ChooseDecode picks a decode engine: one of the pool with the index pool that
// is linked to prefill if there is one, else any. same says that it is such a
// one, so that it can read the prefill engine's KV. An engine that tripped is
// better than none.
func ChooseDecode(now time.Time, pools []Pool, pool int, prefill *Engine, tried Tried) (e *Engine, same bool) {
	if pool >= 0 && prefill != nil {
		if e := best(now, pools[pool].Decode, tried, linkedTo(prefill)); e != nil {
			return e, true
		}
	}
	for _, p := range pools {
		if b := best(now, p.Decode, tried, nil); b != nil && (e == nil || less(b, e)) {
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

// linkedTo says of decode engines whether a prefill engine's KV can come to them.
func linkedTo(prefill *Engine) func(*Engine) bool {
	return func(d *Engine) bool { return d.Linked(prefill.Node) }
}

// best gives the least loaded usable engine of which fits holds, nil if there is
// none. A nil fits holds of all.
func best(now time.Time, es []*Engine, tried Tried, fits func(*Engine) bool) *Engine {
	var b *Engine
	for _, e := range es {
		if e.Usable(now) && !tried[e] && (fits == nil || fits(e)) && (b == nil || less(e, b)) {
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
