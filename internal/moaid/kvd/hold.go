package kvd

import (
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// hold claims for a request that arrived here and asks for the verdict.
func (d *Daemon) hold(e *engine, id wire.ID, source enginesock.Endpoint) (<-chan transfer.Verdict, error) {
	ch := make(chan transfer.Verdict, 1)
	t, err := d.claimFor(e, id, source, nil)
	if err != nil {
		return nil, err
	}
	t.requests++
	if v := t.m.Verdict(); !v.Pending() {
		ch <- v
		return ch, nil
	}
	t.holds = append(t.holds, ch)
	return ch, nil
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
