package kvd

import (
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
)

// claimState is what the connector is told of its claim.
func (t *receiving) claimState() enginesock.ClaimState {
	v := t.m.Verdict()
	switch {
	case v.Pending():
		return enginesock.ClaimState{Verdict: enginesock.Pending}
	case !v.Ready:
		return enginesock.ClaimState{Verdict: enginesock.Failed, Code: failureCode(v.Code), Reason: v.Detail}
	}
	cs := enginesock.ClaimState{Verdict: enginesock.Ready, FromToken: v.From, Ranges: v.Ranges, Extents: make([][]enginesock.Extent, len(t.land.ranks))}
	for rank := range t.land.ranks {
		cs.Extents[rank] = t.land.extents(rank, v.Ranges)
	}
	return cs
}

// extents gives where the concatenation of ranges lies.
func (l *landing) extents(rank int, ranges transfer.Set) []enginesock.Extent {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []enginesock.Extent{}
	for _, r := range ranges {
		for _, p := range l.ranks[rank].parts(r) {
			off, n := p.off, p.n
			for _, e := range p.piece.lease.Extents() {
				if off >= e.Length {
					off -= e.Length
					continue
				}
				k := min(n, e.Length-off)
				x := enginesock.Extent{Offset: e.Offset + off, Length: k}
				if last := len(out) - 1; last >= 0 && out[last].Offset+out[last].Length == x.Offset {
					out[last].Length += k
				} else {
					out = append(out, x)
				}
				if off, n = 0, n-k; n == 0 {
					break
				}
			}
		}
	}
	return out
}

func (d *Daemon) verdict(t *receiving, v transfer.Verdict) {
	if v.Ready {
		t.ready = d.own.now()
		d.metrics.stage("receive", seconds(t.offered, t.ready))
		d.damage(t)
	}
	for _, h := range t.holds {
		h <- v // has room for one, and is told once
	}
	t.holds = nil
	if t.m.HasConnector() {
		t.promised = v.Ready
		d.tellVerdict(t)
	}
}

// tellVerdict tells the connector, unless the answer to its claim does.
func (d *Daemon) tellVerdict(t *receiving) {
	if t.answering {
		t.untold = true
		return
	}
	t.replica.tell(&enginesock.VerdictEvent{ID: t.id.String(), ClaimState: t.claimState()})
}
