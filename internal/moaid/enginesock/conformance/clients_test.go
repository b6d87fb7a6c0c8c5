package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/e2e/rig"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock/conformance"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

const waitFor = 20 * time.Second

// engines are the clients that the reference engine uses, on a pair of daemons.
type engines struct {
	t      *testing.T
	pair   conformance.Pair
	p, d   *enginesock.SchedulerClient
	pw, dw *enginesock.WorkerClient
}

func newEngines(t *testing.T, staging int64) *engines {
	e := &engines{t: t, pair: harness(t, conformance.Options{Fingerprint: conformance.Fingerprint(), Staging: staging})}
	g := rig.NewGroup(t)
	identity := func(s conformance.Side, kind enginesock.SessionKind) enginesock.Identity {
		return enginesock.Identity{Path: s.Socket, Hello: enginesock.Hello{Engine: s.Engine, Generation: rig.ID(7), Session: kind, World: 1, Fingerprint: conformance.Fingerprint()}}
	}
	e.p = enginesock.NewScheduler(identity(e.pair.Prefill, enginesock.Scheduler), nil, nil)
	e.d = enginesock.NewScheduler(identity(e.pair.Decode, enginesock.Scheduler), nil, nil)
	e.pw = enginesock.NewWorker(identity(e.pair.Prefill, enginesock.Worker), nil)
	e.dw = enginesock.NewWorker(identity(e.pair.Decode, enginesock.Worker), nil)
	for _, run := range []func(context.Context){e.p.Run, e.d.Run, e.pw.Run, e.dw.Run} {
		g.Go(run)
	}
	e.up()
	return e
}

func (e *engines) up() {
	e.t.Helper()
	rig.Eventually(e.t, waitFor, func() error {
		return errors.Join(e.p.State(), e.d.State(), e.pw.State(), e.dw.State())
	})
}

func (e *engines) hash(n int) string { return kvcache.TokenHash(make([]int, n)) }

func (e *engines) claim(id string, n int) {
	e.d.Claim(enginesock.Claim{ID: id, Tokens: n, TokenHash: e.hash(n), Source: enginesock.Endpoint{Node: e.pair.Prefill.Node, Engine: e.pair.Prefill.Engine}})
}

func (e *engines) reserved(id string) enginesock.Sending {
	e.t.Helper()
	var s enginesock.Sending
	rig.Eventually(e.t, waitFor, func() error {
		s, _ = e.p.Sending(id)
		if s.Extents == nil || len(s.Ranges) != len(s.Extents) {
			return fmt.Errorf("%s is not reserved: %+v", id, s)
		}
		return nil
	})
	return s
}

func (e *engines) verdict(id string, want enginesock.Verdict) {
	e.t.Helper()
	rig.Eventually(e.t, waitFor, func() error {
		if s, _ := e.d.Poll(id); s.Verdict != want {
			return fmt.Errorf("verdict of %s is %+v, want %s", id, s, want)
		}
		return nil
	})
}

func (e *engines) ended(id string, want enginesock.Outcome) {
	e.t.Helper()
	rig.Eventually(e.t, waitFor, func() error {
		if s, _ := e.p.Sending(id); s.Ended == nil || s.Ended.Outcome != want {
			return fmt.Errorf("%s ended as %+v, want %s", id, s.Ended, want)
		}
		return nil
	})
}

func (e *engines) send(id string, n int) {
	e.t.Helper()
	e.p.Reserve(id, n, nil)
	s := e.reserved(id)
	e.p.Offer(id, n, e.hash(n))
	if err := e.pw.Arena(s.Instance, func([]byte) error { return nil }); err != nil {
		e.t.Fatal(err)
	}
	e.pw.Stored(id, s.Ranges[0])
}

func TestClientsStoreVerdictsAndReportOnce(t *testing.T) {
	e := newEngines(t, 1<<20)
	id := rig.ID(1)
	e.claim(id, 30)
	e.claim(id, 30) // asked for twice
	e.send(id, 30)
	e.verdict(id, enginesock.Ready)
	if err := e.dw.Loaded(id, true); err != nil {
		t.Fatal(err)
	}
	if err := e.dw.Loaded(id, false); !errors.Is(err, enginesock.ErrReported) {
		t.Errorf("a second report: %v", err)
	}
	e.ended(id, enginesock.Committed)
}

func TestClientsSurviveARestart(t *testing.T) {
	e := newEngines(t, 1<<20)
	dead, alive := rig.ID(1), rig.ID(2)
	e.p.Reserve(dead, 30, nil)
	old := e.reserved(dead)
	e.pair.Prefill.Restart()
	e.up()
	e.ended(dead, enginesock.Aborted) // the client knows that the pages are not its own any more
	if err := e.pw.Arena(old.Instance, func([]byte) error { return nil }); !errors.Is(err, enginesock.ErrDown) {
		t.Errorf("extents of the old daemon can be written to: %v", err)
	}
	e.claim(alive, 30)
	e.pair.Decode.Restart()
	e.up()
	e.send(alive, 30)
	e.verdict(alive, enginesock.Ready) // the claim was repeated to the new daemon
	if err := e.dw.Loaded(alive, true); err != nil {
		t.Fatal(err)
	}
	e.ended(alive, enginesock.Committed)
}

func TestReleasedClaimsStayReleased(t *testing.T) {
	e := newEngines(t, 1<<20)
	id := rig.ID(1)
	e.claim(id, 30)
	e.d.Release(id, "aborted")
	e.send(id, 30)
	e.ended(id, enginesock.Aborted) // the prefill side is told that nobody wants it
	if s, _ := e.d.Poll(id); s.Verdict == enginesock.Ready {
		t.Errorf("a released claim became ready: %+v", s)
	}
}

// What a rank has copied may be used only if the daemon still had the pages for it.
func TestReportsAreAnswered(t *testing.T) {
	e := newEngines(t, 1<<20)
	id := rig.ID(1)
	e.send(id, 30)
	e.claim(id, 30)
	e.verdict(id, enginesock.Ready)
	ctx, cancel := context.WithTimeout(t.Context(), waitFor)
	defer cancel()
	if err := e.dw.Report(ctx, id, true); err != nil {
		t.Errorf("a load in time: %v", err)
	}
	if err := e.dw.Report(ctx, id, true); !errors.Is(err, enginesock.ErrReported) {
		t.Errorf("reported twice: %v", err)
	}
	if err := e.dw.Report(ctx, rig.ID(2), true); !errors.Is(err, &enginesock.Error{Code: enginesock.CodeUnknownID}) {
		t.Errorf("a load of pages that are not the transfer's: %v", err)
	}
	e.ended(id, enginesock.Committed)
}

// An id that was withdrawn while it waited for room never had pages: no event
// tells its end, and the room that comes is not for it.
func TestWithdrawnWhileWaitingForRoom(t *testing.T) {
	e := newEngines(t, 64<<10)
	has, waits, next := rig.ID(1), rig.ID(2), rig.ID(3)
	e.p.Reserve(has, 30, nil)
	e.reserved(has)
	e.p.Reserve(waits, 30, nil)
	rig.Eventually(t, waitFor, func() error {
		if s, _ := e.p.Sending(waits); !s.NoRoom {
			return fmt.Errorf("%+v in a full arena", s)
		}
		return nil
	})
	e.p.Withdraw(waits, "the client left")
	e.ended(waits, enginesock.Withdrawn)
	e.p.Reserve(next, 30, nil)
	e.p.Withdraw(has, "the client left")
	e.reserved(next) // whoever else had asked for the room would have got it
	if s, _ := e.p.Sending(waits); s.Extents != nil || s.Ended == nil {
		t.Errorf("what was withdrawn has pages: %+v", s)
	}
}
