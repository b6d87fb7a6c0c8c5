package route

import (
	"testing"
	"time"
)

// trip makes failures close an engine.
func trip(e *Engine, now time.Time) *Engine {
	for range tripAfter {
		e.Begin()
		e.End(now, Failure)
	}
	return e
}

// An answer takes long: its beginning ends the trial.
func TestAnAnswersBeginningEndsTheTrial(t *testing.T) {
	e := trip(ready("d", 0), t0)
	now := t0.Add(openMin)
	e.Begin()
	if e.Usable(now) {
		t.Fatal("a second request during the trial")
	}
	e.Answered()
	if !e.Usable(now) || e.Tripped(now) {
		t.Fatal("still tripped while the answer goes on")
	}
	e.Begin()
	e.Answered()
	e.End(now, Failure) // broke off
	if e.Usable(now) || !e.Usable(now.Add(2*openMin)) {
		t.Error("an engine on trial that fails again is not closed at once, for twice the time")
	}
	e.End(now, Success)
	e.Begin()
	e.End(now, Failure)
	if !e.Usable(now) {
		t.Error("one failure after a success closes it")
	}
}

// Failures keep requests away from a decode engine while there is another, and
// never make it compute the prompt as well.
func TestDecodeEnginesThatTripped(t *testing.T) {
	down := func(name string) *Engine { return &Engine{Target: Target{"n", name}} }
	unlinked := func(e *Engine) *Engine { e.Peers([]string{}); return e }
	for _, c := range []struct {
		name   string
		pools  []Pool
		p, d   string
		reason string
	}{
		{"the only one", []Pool{{Prefill: []*Engine{ready("p", 0)}, Decode: []*Engine{trip(ready("d", 0), t0)}}}, "p", "d", ""},
		{"another of the pair", []Pool{{Prefill: []*Engine{ready("p", 0)}, Decode: []*Engine{trip(ready("d", 0), t0), ready("d1", 9)}}}, "p", "d1", ""},
		{"another of the pair that is down", []Pool{{Prefill: []*Engine{ready("p", 0)}, Decode: []*Engine{down("d1"), trip(ready("d", 0), t0)}}}, "p", "d", ""},
		{"another pair's", []Pool{{Prefill: []*Engine{ready("p", 0)}, Decode: []*Engine{trip(ready("d", 0), t0)}}, {Decode: []*Engine{ready("d1", 9)}}}, "", "d1", ReasonDecodeOpen},
		{"another without a link", []Pool{{Prefill: []*Engine{ready("p", 0)}, Decode: []*Engine{trip(ready("d", 0), t0), unlinked(ready("d1", 9))}}}, "", "d1", ReasonDecodeOpen},
		{"only another pair has one", []Pool{{Prefill: []*Engine{ready("p", 0)}, Decode: []*Engine{down("d")}}, {Decode: []*Engine{ready("d1", 0)}}}, "", "d1", ReasonNoDecode},
		{"no prefill either", []Pool{{Prefill: []*Engine{down("p")}, Decode: []*Engine{trip(ready("d", 0), t0)}}}, "", "d", ReasonDown},
	} {
		got := Choose(t0, c.pools, true, nil)
		name := func(e *Engine) string {
			if e == nil {
				return ""
			}
			return e.Engine
		}
		if name(got.Prefill) != c.p || name(got.Decode) != c.d || got.Reason != c.reason {
			t.Errorf("%s: %v %v %q", c.name, got.Prefill, got.Decode, got.Reason)
		}
	}
	p, d := ready("p", 0), trip(ready("d", 0), t0)
	if e, same := ChooseDecode(t0, []Pool{{Prefill: []*Engine{p}, Decode: []*Engine{d}}}, 0, p, nil); e != d || !same {
		t.Errorf("got %v, may read the KV: %v", e, same)
	}
}
