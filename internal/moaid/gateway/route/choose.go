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
	ReasonDecodeOpen  = "decode_circuit_open" // prefill is there, but failures keep requests away from the decode engines that its KV can come to
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
//
// Failures keep requests away from a decode engine only while there is another
// one: to compute the prompt as well would be no relief to it.
func Choose(now time.Time, pools []Pool, split bool, tried Tried) Choice {
	c := Choice{Pool: -1}
	if split {
		c.Reason = why(now, pools)
		fit := usable(now)
		if anyDecode(pools, tried, fit) == nil {
			fit = isReady
		}
		for i, p := range pools {
			e := best(p.Prefill, tried, usable(now), func(e *Engine) bool { return best(p.Decode, tried, fit, linkedTo(e)) != nil })
			switch {
			case e != nil && (c.Prefill == nil || less(e, c.Prefill)):
				c.Prefill, c.Pool, c.Reason = e, i, ""
			case c.Prefill != nil || best(p.Prefill, tried, usable(now)) == nil:
			case best(p.Prefill, tried, usable(now), func(e *Engine) bool { return best(p.Decode, tried, isReady, linkedTo(e)) != nil }) != nil:
				c.Reason = ReasonDecodeOpen
			case best(p.Decode, tried, isReady) != nil:
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
	for _, fit := range []fits{usable(now), isReady} {
		if pool >= 0 && prefill != nil {
			if e := best(pools[pool].Decode, tried, fit, linkedTo(prefill)); e != nil {
				return e, true
			}
		}
		if e := anyDecode(pools, tried, fit); e != nil {
			return e, false
		}
	}
	return nil, false
}

// anyDecode gives the least loaded decode engine of all pools that fits, nil if
// there is none.
func anyDecode(pools []Pool, tried Tried, fit fits) (e *Engine) {
	for _, p := range pools {
		if b := best(p.Decode, tried, fit); b != nil && (e == nil || less(b, e)) {
			e = b
		}
	}
	return e
}

// fits says whether an engine can be chosen.
type fits func(*Engine) bool

func usable(now time.Time) fits { return func(e *Engine) bool { return e.Usable(now) } }

// isReady also holds of engines that tripped.
func isReady(e *Engine) bool { return e.state == Ready }

func less(a, b *Engine) bool {
	if a.Outstanding != b.Outstanding {
		return a.Outstanding < b.Outstanding
	}
	return a.Waiting < b.Waiting
}

// linkedTo says of decode engines whether a prefill engine's KV can come to them.
func linkedTo(prefill *Engine) fits {
	return func(d *Engine) bool { return d.Linked(prefill.Node) }
}

// best gives the least loaded engine of which all holds and which was not tried,
// nil if there is none.
func best(es []*Engine, tried Tried, all ...fits) *Engine {
	var b *Engine
next:
	for _, e := range es {
		for _, fit := range all {
			if !fit(e) {
				continue next
			}
		}
		if !tried[e] && (b == nil || less(e, b)) {
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
