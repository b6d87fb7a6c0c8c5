package kvd

import (
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// hold claims for a request that arrived here and asks for the verdict. The
// request must go to the replica that it gives.
func (d *Daemon) hold(e *engine, id wire.ID, source enginesock.Endpoint) (<-chan transfer.Verdict, *replica, error) {
	ch := make(chan transfer.Verdict, 1)
	t, err := d.claimFor(d.choose(e), id, source, nil)
	if err != nil {
		return nil, nil, err
	}
	t.requests++
	t.replica.forwarding++
	if v := t.m.Verdict(); !v.Pending() {
		ch <- v
		return ch, t.replica, nil
	}
	t.holds = append(t.holds, ch)
	return ch, t.replica, nil
}

// choose gives the replica that has the least to do, of those that are connected
// if any is. Replicas that have the same take turns.
func (d *Daemon) choose(e *engine) *replica {
	n := len(e.replicas)
	if n == 1 {
		return e.replicas[0]
	}
	load := d.loads(e)
	best := -1
	for i := range n {
		k := (e.turn + i) % n
		if best < 0 {
			best = k
			continue
		}
		a, b := e.replicas[k], e.replicas[best]
		if a.connected() != b.connected() {
			if a.connected() {
				best = k
			}
			continue
		}
		if load[k] < load[best] {
			best = k
		}
	}
	e.turn = (best + 1) % n
	return e.replicas[best]
}

// loads says by replica what it has to do: the requests that are held for it or
// that it was given and has not answered, the transfers that it claimed for
// others, and what it last said itself. The latter may be old by a second and has
// the former in it: it shows what came to the engine by other ways, and counts
// only if all replicas said something of now.
func (d *Daemon) loads(e *engine) []int {
	load := make([]int, len(e.replicas))
	told := e.load(d.own.now()) != nil
	for k, r := range e.replicas {
		load[k] = r.forwarding
		if told {
			load[k] += r.stats.Waiting + r.stats.Running
		}
	}
	for _, t := range d.order {
		if t.replica.engine == e && t.requests == 0 && !t.m.State().Terminal() {
			load[t.replica.rank]++
		}
	}
	return load
}

// unhold says that a request that was held is over: its client has left, or the
// engine has answered it. If no engine claimed until then none will, and nobody
// needs the KV.
func (d *Daemon) unhold(id wire.ID, r *replica, ch <-chan transfer.Verdict) {
	r.forwarding--
	t := d.recvs[id]
	if t == nil {
		return
	}
	t.holds = slices.DeleteFunc(t.holds, func(h chan transfer.Verdict) bool { return h == ch })
	if t.requests--; t.requests == 0 {
		_ = d.stepRecv(t, transfer.Unhold{Detail: "the held request ended and the engine did not claim"})
	}
}
