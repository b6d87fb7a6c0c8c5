package kvd

import (
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
)

// Events that are queued for a session which ends are told to the next one of the
// same run, but for a verdict that does not hold any more.
func TestUndeliveredEventsFollowTheScheduler(t *testing.T) {
	n := newNode(t, "p", nil)
	must[*api.EngineStatus](t, "engine")(n.c.PutEngine(t.Context(), registration(n, "prefill", "prefill", testFingerprint())))
	gen := newID()
	open := func(generation string) *rawSession {
		s := dialRaw(t, n)
		h := enginesock.Hello{Version: enginesock.Version, Engine: "prefill", Generation: generation, Session: enginesock.Scheduler, World: 2, Fingerprint: testFingerprint()}
		if r, _, err := s.ask(&h, nil); err != nil || r.Type() != enginesock.TypeOK {
			t.Fatalf("%+v %v", r, err)
		}
		return s
	}
	// A session whose writer does not get to write: it has ended, and is not replaced.
	lost := func(id string) {
		if err := n.d.own.call(t.Context(), func() {
			r := n.d.engines["prefill"].replicas[0]
			s := &session{log: n.d.log, out: outbox{wake: make(chan struct{}, 1)}, kind: enginesock.Scheduler, home: r, generation: r.generation, close: func() {}}
			s.known.Store(true)
			s.ok(7)
			s.send(&enginesock.VerdictEvent{ID: id, ClaimState: enginesock.ClaimState{Verdict: enginesock.Ready}}, nil)
			s.send(&enginesock.Released{ID: id, Outcome: enginesock.Expired}, nil)
			list := s.out.take()
			s.send(&enginesock.Room{}, nil)
			s.out.putBack(list)
			r.sched = nil
			n.d.undelivered(s)
		}); err != nil {
			t.Fatal(err)
		}
	}
	open(gen)
	id := newID()
	lost(id)
	next := open(gen)
	for _, want := range []string{enginesock.TypeReleased, enginesock.TypeRoom} {
		b, _, err := next.conn.Read()
		if err != nil {
			t.Fatal(err)
		}
		r, err := enginesock.DecodeReply(b)
		if err != nil || r.Type() != want {
			t.Fatalf("%+v, want %s: %v", r, want, err)
		}
	}
	lost(newID())
	if r, _, err := open(newID()).ask(&enginesock.Ping{}, nil); err != nil || r.Type() != enginesock.TypeOK {
		t.Errorf("a new run was told of an earlier one's transfers: %+v %v", r, err)
	}
}
