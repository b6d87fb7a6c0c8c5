package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/route"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/upstream"
)

const (
	// defaultDecodeWait is how long a request waits, over all, for decode to
	// return: a daemon or a small engine restarts within it.
	defaultDecodeWait = 10 * time.Second
	// drainFactor is how much longer it waits while a daemon finishes what it has
	// before it ends, which takes 20 s at most.
	drainFactor = 3
	// retryMin and retryMax bound the pause after an attempt that failed, which
	// doubles: what polls show of an engine may be a poll old.
	retryMin = 250 * time.Millisecond
	retryMax = time.Second
)

// Results of a wait, as they are counted.
const (
	waitResumed = "resumed"
	waitGaveUp  = "gave_up"
	waitLeft    = "client_left"
)

// decodeAway is the failure that no decode engine is there, which may be over
// soon. Nothing was sent to the client.
type decodeAway struct{ f *failure }

func (e *decodeAway) Error() string { return e.f.Error() }
func (e *decodeAway) Unwrap() error { return e.f }

// returning is a request's wait for decode engines that are being restarted.
type returning struct {
	begun time.Time // zero before the first wait
	until time.Time
	pause time.Duration
}

// serveRequest has the request served. When no decode engine took it and nothing
// was sent to the client, it waits a while for one to return and begins anew.
func (x *exchange) serveRequest(ctx context.Context) error {
	for {
		err := x.runPrefill(ctx)
		if err == nil {
			err = x.runDecode(ctx)
		}
		var away *decodeAway
		if !errors.As(err, &away) || !x.hopes() {
			return err
		}
		resumed := x.awaitDecode(ctx, away.f.code == codeDecodeFailed)
		switch {
		case ctx.Err() != nil:
			x.g.metrics.decodeWaits.WithLabelValues(waitLeft).Inc()
			return errClientGone
		case !resumed:
			x.g.metrics.decodeWaits.WithLabelValues(waitGaveUp).Inc()
			return err
		}
		x.g.metrics.decodeWaits.WithLabelValues(waitResumed).Inc()
		x.anew()
	}
}

// hopes reports whether it makes sense to wait at all.
func (x *exchange) hopes() bool {
	_, hope := x.g.fleet.decodeAgain(x.pool)
	return hope && (x.back.begun.IsZero() || time.Now().Before(x.waitUntil()))
}

// awaitDecode waits until a decode engine can be asked; false means that none
// returned in time. pause leaves time after an attempt that failed.
func (x *exchange) awaitDecode(ctx context.Context, pause bool) bool {
	b := &x.back
	if b.begun.IsZero() {
		b.begun, b.pause = time.Now(), retryMin
	}
	if pause {
		select {
		case <-time.After(min(b.pause, time.Until(x.waitUntil()))):
		case <-ctx.Done():
			return false
		}
		b.pause = min(2*b.pause, retryMax)
	}
	for {
		changed := x.g.fleet.watch()
		ready, hope := x.g.fleet.decodeAgain(x.pool)
		left := time.Until(x.waitUntil())
		if ready || !hope || left <= 0 {
			return ready
		}
		t := time.NewTimer(left)
		select {
		case <-changed:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return false
		}
		t.Stop()
	}
}

// waitUntil is when the request gives up. Once a daemon was seen to end, that
// stays later: it is down next, and then back.
func (x *exchange) waitUntil() time.Time {
	b, wait := &x.back, x.g.decodeWait
	if x.g.fleet.decodeRestarts(x.pool) {
		wait *= drainFactor
	}
	if by := b.begun.Add(wait); by.After(b.until) {
		b.until = by
	}
	return b.until
}

// decodeRestarts reports whether a decode engine's daemon ends and may be back.
func (f *fleet) decodeRestarts(pools []route.Pool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for _, p := range pools {
		for _, e := range p.Decode {
			if e.Restarting(now) {
				return true
			}
		}
	}
	return false
}

// anew forgets the attempt. The transfer gets another id: daemons were told that
// nobody waits for the old one.
func (x *exchange) anew() {
	x.id, x.tried, x.params, x.prefill, x.decode, x.poolAt = newID(), route.Tried{}, nil, nil, nil, -1
	x.rec.id, x.rec.prefill, x.rec.decode, x.rec.route, x.rec.reason = x.id, "", "", routeNone, ""
}

// decodeAgain says whether a decode engine can be asked now, and if not, whether
// one was there a moment ago, so that it may be restarting.
func (f *fleet) decodeAgain(pools []route.Pool) (ready, hope bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if e, _ := route.ChooseDecode(now, pools, -1, nil, nil); e != nil {
		return true, true
	}
	for _, p := range pools {
		for _, e := range p.Decode {
			if e.Returning(now) {
				return false, true
			}
		}
	}
	return false, false
}

// restarting reports whether a failure is what one sees of a daemon or an engine
// that is being restarted: it did not take the request, or ended with it.
func (e *decodeError) restarting() bool {
	return e.class == upstream.ClassDial ||
		e.class == upstream.ClassStatus && (e.status == http.StatusBadGateway || e.status == http.StatusServiceUnavailable || e.status == http.StatusInternalServerError)
}
