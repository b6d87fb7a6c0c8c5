package route

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var t0 = time.Unix(1000, 0)

func ready(name string, outstanding int) *Engine {
	e := &Engine{Target: Target{"n", name}, Outstanding: outstanding}
	e.Report(Ready, "", 0)
	return e
}

func TestLeastLoadedThenFirst(t *testing.T) {
	p0, p1, d0, d1 := ready("p0", 1), ready("p1", 1), ready("d0", 2), ready("d1", 1)
	pools := []Pool{{Prefill: []*Engine{p0, p1}, Decode: []*Engine{d0, d1}}}
	if c := Choose(t0, pools, true, nil); c.Prefill != p0 || c.Decode != d1 || c.Pool != 0 {
		t.Errorf("got %v %v", c.Prefill, c.Decode)
	}
	p0.Waiting = 3
	if c := Choose(t0, pools, true, nil); c.Prefill != p1 {
		t.Errorf("the engine's own queue does not count: %v", c.Prefill)
	}
	if c := Choose(t0, pools, false, nil); c.Prefill != nil || c.Reason != "" || c.Decode != d1 {
		t.Errorf("not split: %+v", c)
	}
}

func TestReasons(t *testing.T) {
	for _, c := range []struct {
		states []State
		want   string
	}{
		{nil, ReasonNoPrefill}, {[]State{Unknown}, ReasonDown}, {[]State{Down, Absent}, ReasonNotReady},
		{[]State{Draining, NotReady}, ReasonDraining}, {[]State{NotReady, Ready}, ""},
	} {
		var ps []*Engine
		for _, s := range c.states {
			e := &Engine{}
			e.Report(s, "", 0)
			ps = append(ps, e)
		}
		got := Choose(t0, []Pool{{Prefill: ps, Decode: []*Engine{ready("d", 0)}}}, true, nil)
		if got.Reason != c.want || got.Decode == nil {
			t.Errorf("%v: %q, want %q", c.states, got.Reason, c.want)
		}
	}
}

func TestPrefillNeedsADecodeEngineOfItsPool(t *testing.T) {
	p0, p1, d1 := ready("p0", 0), ready("p1", 9), ready("d1", 9)
	pools := []Pool{{Prefill: []*Engine{p0}, Decode: []*Engine{{}}}, {Prefill: []*Engine{p1}, Decode: []*Engine{d1}}}
	if c := Choose(t0, pools, true, nil); c.Prefill != p1 || c.Decode != d1 {
		t.Errorf("got %v %v", c.Prefill, c.Decode)
	}
	if e, same := ChooseDecode(t0, pools, 0, p0, nil); e != d1 || same {
		t.Errorf("got %v, same pool %v", e, same)
	}
}

// KV goes only where a link is, as decode's daemon says.
func TestLinks(t *testing.T) {
	at := func(node, name string, outstanding int, peers ...string) *Engine {
		e := ready(name, outstanding)
		e.Node = node
		if len(peers) > 0 {
			e.Peers(peers)
		}
		return e
	}
	none := func(e *Engine) *Engine { e.Peers([]string{}); return e }
	for _, c := range []struct {
		name    string
		prefill []*Engine
		decode  []*Engine
		p, d    string // chosen
		reason  string
	}{
		{"unknown counts as linked", []*Engine{at("p", "p0", 0)}, []*Engine{at("d", "d0", 0)}, "p0", "d0", ""},
		{"linked", []*Engine{at("p", "p0", 0)}, []*Engine{at("d", "d0", 0, "x", "p")}, "p0", "d0", ""},
		{"no session", []*Engine{at("p", "p0", 0)}, []*Engine{none(at("d", "d0", 0))}, "", "d0", ReasonLinkDown},
		{"to another node only", []*Engine{at("p", "p0", 0)}, []*Engine{at("d", "d0", 0, "x")}, "", "d0", ReasonLinkDown},
		{"the busier decode engine is linked", []*Engine{at("p", "p0", 0)}, []*Engine{none(at("d", "d0", 0)), at("e", "d1", 9, "p")}, "p0", "d1", ""},
		{"the busier prefill engine is linked", []*Engine{at("p", "p0", 0), at("q", "p1", 9)}, []*Engine{at("d", "d0", 0, "q")}, "p1", "d0", ""},
	} {
		got := Choose(t0, []Pool{{Prefill: c.prefill, Decode: c.decode}}, true, nil)
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
	// A decode engine of the pair that failed over is no use for the KV without a link.
	p, d := at("p", "p0", 0), none(at("d", "d0", 0))
	if e, same := ChooseDecode(t0, []Pool{{Prefill: []*Engine{p}, Decode: []*Engine{d}}}, 0, p, nil); e != d || same {
		t.Errorf("got %v, may read the KV: %v", e, same)
	}
	d.Peers([]string{"p"})
	if c := Choose(t0, []Pool{{Prefill: []*Engine{p}, Decode: []*Engine{d}}}, true, nil); c.Prefill != p {
		t.Error("the pair is not used again when the link is back")
	}
}

func TestBreaker(t *testing.T) {
	e := ready("p", 0)
	now := t0
	fail := func() { e.Begin(); e.End(now, Failure) }
	fail()
	fail()
	if !e.Usable(now) {
		t.Fatal("tripped after 2 failures")
	}
	fail()
	if e.Usable(now) || !e.Tripped(now) {
		t.Fatal("not tripped after 3 failures")
	}
	if d, _ := ChooseDecode(now, []Pool{{Decode: []*Engine{e}}}, -1, nil, nil); d != e {
		t.Error("a tripped decode engine is better than none")
	}
	now = now.Add(openMin)
	if !e.Usable(now) {
		t.Fatal("no trial after the time")
	}
	e.Begin()
	if e.Usable(now) {
		t.Fatal("a second request during the trial")
	}
	e.End(now, Neutral) // the trial's client left: the next one tries
	if !e.Usable(now) {
		t.Fatal("a trial without a result blocks for ever")
	}
	fail()
	if e.Usable(now.Add(2*openMin-1)) || !e.Usable(now.Add(2*openMin)) {
		t.Error("the time does not double")
	}
	now = now.Add(2 * openMin)
	e.Begin()
	e.End(now, Success)
	if !e.Usable(now) || e.Outstanding != 0 {
		t.Error("not closed after a success")
	}
}

// Whatever happens, a choice names only engines that are ready and were not
// tried, counts stay right, and every engine that is ready gets requests again.
func TestChooseProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := t0
		var all []*Engine
		gen := func(name string, n int) (es []*Engine) {
			for range n {
				e := &Engine{Target: Target{name, string(rune('a' + len(all)))}}
				es, all = append(es, e), append(all, e)
			}
			return es
		}
		var pools []Pool
		for range rapid.IntRange(1, 3).Draw(t, "pools") {
			pools = append(pools, Pool{
				Prefill: gen("p", rapid.IntRange(0, 3).Draw(t, "p")),
				Decode:  gen("d", rapid.IntRange(1, 3).Draw(t, "d")),
			})
		}
		running := map[*Engine]int{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			e := rapid.SampledFrom(all).Draw(t, "engine")
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				e.Report(State(rapid.IntRange(0, int(Ready)).Draw(t, "state")), "", 0)
			case 1:
				now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			case 2:
				tried := Tried{e: true}
				c := Choose(now, pools, true, tried)
				if again := Choose(now, pools, true, tried); c != again {
					t.Fatalf("two choices in the same state: %v, %v", c, again)
				}
				if (c.Prefill == nil) != (c.Reason != "") {
					t.Fatalf("prefill %v with reason %q", c.Prefill, c.Reason)
				}
				for _, x := range []*Engine{c.Prefill, c.Decode} {
					if x == nil {
						continue
					}
					if s, _ := x.State(); s != Ready || tried[x] {
						t.Fatalf("chose %v, which is %v", x, s)
					}
					x.Begin()
					running[x]++
				}
			case 3:
				if running[e] > 0 {
					running[e]--
					e.End(now, Outcome(rapid.IntRange(0, 2).Draw(t, "outcome")))
				}
			}
			if e.Outstanding != running[e] {
				t.Fatalf("%v counts %d, has %d", e, e.Outstanding, running[e])
			}
		}
		for _, e := range all {
			for ; running[e] > 0; running[e]-- {
				e.End(now, Neutral)
			}
			e.Report(Ready, "", 0)
			if !e.Usable(now.Add(openMax)) {
				t.Fatalf("%v never gets a request again", e)
			}
		}
	})
}
