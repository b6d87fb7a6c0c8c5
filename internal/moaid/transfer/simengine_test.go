package transfer

import (
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// verdict is the decode engine's reaction.
func (w *simWorld) verdict(x *simID, v Verdict) {
	claim := Claim{x.tokens, x.dhash, x.from}
	if !x.d.HasConnector() {
		w.after(w.delay(time.Second), func() {
			if w.chance(0.1) {
				w.stepD(x, Unhold{"client left"})
				return
			}
			w.stepD(x, claim)
			w.load(x)
		})
		return
	}
	if v.Ready {
		w.load(x)
	}
}

func (w *simWorld) load(x *simID) {
	v := x.d.Verdict()
	if !v.Ready || x.loading {
		return
	}
	switch {
	case w.faulty && w.chance(0.05):
		return // a hung engine
	case w.chance(0.1):
		w.stepD(x, Release{Detail: "own cache", Loading: w.chance(0.5)})
		return
	case v.From > 0 && w.chance(0.2):
		w.stepD(x, Claim{x.tokens, x.dhash, v.From / 2})
		return // ready again comes as another verdict
	}
	x.loading = true
	for rank := range x.ranks {
		w.after(w.delay(300*time.Millisecond), func() { w.stepD(x, Loaded{rank, !w.chance(0.03)}) })
	}
	if w.chance(0.1) {
		w.after(w.delay(300*time.Millisecond), func() { w.stepD(x, Release{Detail: "abort"}) })
	}
}

// allocate gives in-flight budget, oldest first.
func (w *simWorld) allocate() {
	for _, x := range w.ids {
		if x.d == nil {
			continue
		}
		n := min(x.d.Wanted(), simLimit-w.inflight)
		if n <= 0 {
			continue
		}
		w.inflight += n
		if w.inflight > simLimit {
			w.fail("in-flight limit exceeded")
		}
		effects, _ := x.d.Step(w.now, Credit{n})
		for _, e := range effects {
			w.effectD(x, e)
		}
		d := x.d
		w.tick(d.Deadline(), func() { w.stepD(x, Tick{}) })
	}
}

// script schedules what the engines and operators do with an id.
func (w *simWorld) script(x *simID) {
	start := w.delay(20 * time.Second)
	opts := SenderOptions{Tokens: x.tokens, Own: simOwn(x.sources), MaxChunk: 256, Window: 4, Timeouts: DefaultTimeouts()}
	w.after(start, func() {
		x.p, x.reserved = NewSender(w.now, opts), true
		x.pMade++
		if x.early != nil {
			w.stepP(x, *x.early)
		}
		w.stepP(x, Tick{})
	})
	if !w.chance(0.05) {
		w.after(start+w.delay(5*time.Second), func() { w.stepP(x, Offer{x.tokens, x.hash}) })
	}
	for rank, own := range simOwn(x.sources) {
		at, all := start, own.Bytes()
		for off := int64(0); off < all; {
			n := min(1+w.rng.Int64N(700), all-off)
			at += w.delay(400 * time.Millisecond)
			r := kvcache.Range{Offset: off, Length: n}
			if !w.chance(0.01) {
				w.after(at, func() {
					for o := r.Offset; o < end(r); o++ {
						x.have[simAt(rank, x.sources, o)] = true
					}
					w.stepP(x, Stored{rank, []kvcache.Range{r}})
				})
			}
			off += n
		}
	}
	if w.chance(0.1) {
		w.after(start+w.delay(8*time.Second), func() { w.stepP(x, Withdraw{"client left"}) })
	}
	claimAt := max(0, start+w.delay(6*time.Second)-2*time.Second)
	if w.chance(0.95) {
		w.after(claimAt, func() { w.claim(x) })
	}
	if w.chance(0.08) {
		w.after(claimAt+w.delay(5*time.Second), func() {
			w.stepP(x, Cancel{CodeCancelled, "operator"})
			w.stepD(x, Cancel{CodeCancelled, "operator"})
		})
	}
}

func (w *simWorld) claim(x *simID) {
	var c *Claim
	if w.chance(0.5) {
		c = &Claim{x.tokens, x.dhash, x.from}
	}
	x.d = NewReceiver(w.now, ReceiverOptions{Ranks: x.ranks, Need: simNeed(x.ranks), Own: func(int) ([]Set, error) { return simOwn(x.ranks), nil }, Timeouts: DefaultTimeouts()}, c)
	x.wanted = true
	if w.session != 0 {
		w.stepD(x, PeerUp{w.session, w.instance})
	}
	w.stepD(x, Tick{})
}

// restartP is a kill -9 of the prefill node's daemon.
func (w *simWorld) restartP() {
	w.instance[0]++
	for _, x := range w.ids {
		if x.p != nil && !x.p.State().Terminal() {
			x.pEnded++ // its memory is gone, and with it the lease
		}
		if x.p != nil {
			x.pFreed, x.p, x.early = x.pMade, nil, nil
		}
	}
	w.kill()
}
