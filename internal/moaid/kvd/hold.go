package kvd

import (
	"cmp"
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
	if v := t.m.Verdict(); !v.Pending() {
		ch <- v
		return ch, t.replica, nil
	}
	t.holds = append(t.holds, ch)
	return ch, t.replica, nil
}

// choose gives the replica with the fewest live transfers, of those that are
// connected if any is.
func (d *Daemon) choose(e *engine) *replica {
	if len(e.replicas) == 1 {
		return e.replicas[0]
	}
	live := map[*replica]int{}
	for _, t := range d.order {
		if !t.m.State().Terminal() {
			live[t.replica]++
		}
	}
	return slices.MinFunc(e.replicas, func(a, b *replica) int {
		if a.connected() != b.connected() {
			if a.connected() {
				return -1
			}
			return 1
		}
		return cmp.Compare(live[a], live[b])
	})
}

// unhold says that a held request is over: its client has left, or the engine has
// answered it. If no engine claimed until then none will, and nobody needs the KV.
func (d *Daemon) unhold(id wire.ID, ch <-chan transfer.Verdict) {
	t := d.recvs[id]
	if t == nil {
		return
	}
	t.holds = slices.DeleteFunc(t.holds, func(h chan transfer.Verdict) bool { return h == ch })
	if t.requests--; t.requests == 0 {
		_ = d.stepRecv(t, transfer.Unhold{Detail: "the held request ended and the engine did not claim"})
	}
}
