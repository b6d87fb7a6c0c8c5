package transfer

import (
	"container/heap"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	simSeeds = flag.Int("sim.seeds", 300, "seeds of the simulation")
	simFirst = flag.Uint64("sim.first", 1, "first seed")
)

// TestSim runs two daemons' machines, their engines and a network that loses
// sessions, reorders chunks and damages some, in virtual time, one event after
// the other. Its last line is a JSON object.
func TestSim(t *testing.T) {
	violations := 0
	outcomes := map[string]int{}
	for i := range *simSeeds {
		seed := *simFirst + uint64(i)
		for _, v := range runSim(seed, outcomes) {
			violations++
			t.Errorf("seed %d: %s", seed, v)
		}
	}
	line, err := json.Marshal(map[string]any{"seeds": *simSeeds, "violations": violations, "receivers": outcomes})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(line))
	for _, o := range []string{"committed/", "aborted/token_hash", "aborted/withdrawn", "aborted/peer_gone", "aborted/not_offered", "aborted/deadline", "aborted/cancelled", "aborted/not_needed", "aborted/load_failed"} {
		if *simSeeds >= 100 && outcomes[o] == 0 {
			t.Errorf("the simulation never reached %s", o)
		}
	}
}

const (
	simSplit = 4096 // bytes of the model that are divided over ranks
	simSame  = 512  // bytes that each rank has alike
	simLimit = 3000 // in-flight budget of the decode engine
)

type simEvent struct {
	at  Instant
	seq int
	do  func()
}

type simQueue []simEvent

func (q simQueue) Len() int { return len(q) }
func (q simQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q simQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *simQueue) Push(x any)   { *q = append(*q, x.(simEvent)) }
func (q *simQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

type simWorld struct {
	rng      *rand.Rand
	now      Instant
	seq      int
	queue    simQueue
	ids      []*simID
	session  Session // 0: none
	sessions Session
	fifo     Instant // last delivery on the control session, both directions
	instance Instance
	inflight int64
	faulty   bool
	bad      []string
}

// simID is everything about one id: both machines, both engines and the bytes.
type simID struct {
	n, sources, ranks         int // of the prefill and of the decode engine
	tokens, from              int
	hash, dhash               string
	p                         *Sender
	d                         *Receiver
	early                     *PeerClaim // a CLAIM that came before the reservation
	pEnded, pFreed, pMade     int
	dEnded, dFreed            int
	got                       [][]byte
	have                      []bool // bytes of the model that some worker has stored
	loading, wanted, reserved bool
}

func (w *simWorld) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, simEvent{w.now.Add(d), w.seq, do})
}

func (w *simWorld) chance(p float64) bool { return w.rng.Float64() < p }

func (w *simWorld) delay(limit time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(limit)))
}

func (w *simWorld) fail(format string, args ...any) {
	w.bad = append(w.bad, fmt.Sprintf("at %v: ", time.Duration(w.now))+fmt.Sprintf(format, args...))
}

// control delivers in order, unless the session dies first.
func (w *simWorld) control(s Session, do func()) {
	if s != w.session {
		return
	}
	at := max(w.now.Add(w.delay(20*time.Millisecond)), w.fifo)
	w.fifo = at
	w.seq++
	heap.Push(&w.queue, simEvent{at, w.seq, func() {
		if s == w.session {
			do()
		}
	}})
}

func (w *simWorld) kill() {
	if w.session == 0 {
		return
	}
	old := w.session
	w.session = 0
	w.after(w.delay(50*time.Millisecond), func() { w.eachP(PeerDown{old}) })
	w.after(w.delay(50*time.Millisecond), func() { w.eachD(PeerDown{old}) })
	back := w.delay(40 * time.Second)
	if !w.faulty {
		back = 200 * time.Millisecond
	}
	w.after(back, func() {
		if w.session == 0 {
			w.connect()
		}
	})
}

func (w *simWorld) connect() {
	w.sessions++
	w.session = w.sessions
	w.fifo = w.now
	s, inst := w.session, w.instance
	w.control(s, func() { w.eachP(PeerUp{s, Instance{9}}) })
	w.control(s, func() { w.eachD(PeerUp{s, inst}) })
}

func (w *simWorld) eachP(ev Event) {
	for _, x := range w.ids {
		if x.p != nil {
			w.stepP(x, ev)
		}
	}
}

func (w *simWorld) eachD(ev Event) {
	for _, x := range w.ids {
		if x.d != nil {
			w.stepD(x, ev)
		}
	}
}

func (w *simWorld) stepP(x *simID, ev Event) {
	p := x.p
	if p == nil {
		return
	}
	effects, _ := p.Step(w.now, ev)
	for _, e := range effects {
		switch e := e.(type) {
		case SendOffer:
			o := *p.Offered()
			w.control(e.Session, func() { w.stepD(x, PeerOffer{e.Session, o.Tokens, o.Hash}) })
		case SendAbort:
			w.control(e.Session, func() { w.stepD(x, PeerAbort(e)) })
		case SendChunk:
			w.chunk(x, p, e)
		case Violation:
			w.fail("id %d: sender sees %s", x.n, e.Why)
		case Ended:
			x.pEnded++
		case FreePages:
			x.pFreed++
		}
	}
	if !p.State().Terminal() || x.pFreed < x.pMade {
		w.tick(p.Deadline(), func() { w.stepP(x, Tick{}) })
	}
}

func (w *simWorld) tick(at Instant, do func()) {
	w.seq++
	heap.Push(&w.queue, simEvent{max(at, w.now+1), w.seq, do})
}

func (w *simWorld) chunk(x *simID, p *Sender, e SendChunk) {
	failed := e.Session != w.session
	for o := e.Offset; o < e.Offset+e.Length; o++ {
		if !x.have[simAt(e.Rank, x.ranks, o)] {
			w.fail("id %d: byte %d of rank %d was sent before it was stored", x.n, o, e.Rank)
			return
		}
	}
	damaged := w.faulty && w.chance(0.002)
	w.after(w.delay(5*time.Millisecond), func() {
		if x.p == p {
			w.stepP(x, ChunkSent{e.Session, e.Rank, e.Offset, e.Length, failed})
		}
	})
	if failed {
		return
	}
	w.after(w.delay(80*time.Millisecond), func() {
		if e.Session != w.session || x.d == nil {
			return
		}
		if damaged {
			w.kill()
			return
		}
		if x.dFreed == 0 {
			for o := e.Offset; o < e.Offset+e.Length; o++ {
				x.arrive(e.Rank, o)
			}
		}
		w.stepD(x, ChunkVerified(e))
	})
}

// arrive writes a byte, and what other ranks have alike to these too.
func (x *simID) arrive(rank int, o int64) {
	b := content(x.n, simAt(rank, x.ranks, o))
	x.got[rank][o] = b
	if rank == 0 && o >= int64(simSplit/x.ranks) {
		for _, g := range x.got {
			g[o] = b
		}
	}
}

func (w *simWorld) stepD(x *simID, ev Event) {
	d := x.d
	if d == nil {
		return
	}
	effects, _ := d.Step(w.now, ev)
	for _, e := range effects {
		w.effectD(x, e)
	}
	if !d.State().Terminal() || x.dFreed == 0 {
		w.tick(d.Deadline(), func() { w.stepD(x, Tick{}) })
	}
	w.allocate()
}

func (w *simWorld) effectD(x *simID, e Effect) {
	switch e := e.(type) {
	case SendClaim:
		w.control(e.Session, func() { w.claimAtP(x, PeerClaim{e.Session, "d/decode", 60 * time.Second, simView(x.sources, x.ranks)}) })
	case SendGrant:
		w.control(e.Session, func() { w.stepP(x, PeerGrant{e.Session, e.Rank, e.Ranges, e.Credit}) })
	case SendCredit:
		w.control(e.Session, func() { w.stepP(x, PeerCredit(e)) })
	case SendCommit:
		w.control(e.Session, func() { w.stepP(x, PeerCommit(e)) })
	case SendAbort:
		w.control(e.Session, func() { w.stepP(x, PeerAbort(e)) })
	case Violation:
		w.fail("id %d: receiver sees %s", x.n, e.Why)
	case LeasePages:
		if w.chance(0.9) {
			w.after(w.delay(time.Millisecond), func() { w.stepD(x, Leased{true}) })
		} else {
			w.after(0, func() { w.stepD(x, Leased{false}) })
			w.after(w.delay(50*time.Second), func() { w.stepD(x, Leased{true}) })
		}
	case ReturnBudget:
		w.inflight -= e.Bytes
		if w.inflight < 0 {
			w.fail("id %d: more budget returned than given", x.n)
		}
	case VerdictReached:
		w.verdict(x, e.Verdict)
	case Ended:
		x.dEnded++
		if e.Outcome == Committed {
			w.checkCommit(x)
		}
	case FreePages:
		x.dFreed++
	}
}

// claimAtP is a CLAIM's arrival: without a reservation it is remembered.
func (w *simWorld) claimAtP(x *simID, c PeerClaim) {
	if x.p == nil {
		x.early = &c
		return
	}
	w.stepP(x, c)
}

func (w *simWorld) checkCommit(x *simID) {
	if x.hash != x.dhash {
		w.fail("id %d committed with another prompt's bytes", x.n)
	}
	if moved, _ := x.d.Moved(); moved != x.d.Expected() {
		w.fail("id %d committed with %d of %d bytes", x.n, moved, x.d.Expected())
	}
	rs, _ := simNeed(x.ranks)(x.tokens, x.d.From())
	for rank := range x.got {
		for _, r := range rs {
			for o := r.Offset; o < end(r); o++ {
				if x.got[rank][o] != content(x.n, simAt(rank, x.ranks, o)) {
					w.fail("id %d committed with wrong byte %d of rank %d", x.n, o, rank)
					return
				}
			}
		}
	}
}

func runSim(seed uint64, outcomes map[string]int) []string {
	w := &simWorld{rng: rand.New(rand.NewPCG(seed, 7)), faulty: true, now: 1}
	for n := range 12 {
		x := &simID{n: n, sources: 1 << w.rng.IntN(3), ranks: 1 << w.rng.IntN(3), tokens: 70, hash: "h", dhash: "h", have: make([]bool, simSplit+simSame)}
		x.from = w.rng.IntN(4) * 20
		if w.chance(0.1) {
			x.from = 70
		}
		if w.chance(0.08) {
			x.dhash = "other"
		}
		for range x.ranks {
			x.got = append(x.got, make([]byte, simBytes(x.ranks)))
		}
		w.ids = append(w.ids, x)
		w.script(x)
	}
	w.connect()
	for range w.rng.IntN(5) {
		w.after(w.delay(40*time.Second), w.kill)
	}
	if w.chance(0.2) {
		w.after(w.delay(40*time.Second), w.restartP)
	}
	if w.chance(0.15) {
		w.after(w.delay(30*time.Second), func() { w.eachP(EngineGone{Fenced: w.chance(0.5), Detail: "restarted"}) })
	}
	if w.chance(0.15) {
		w.after(w.delay(30*time.Second), func() { w.eachD(EngineGone{Fenced: w.chance(0.5), Detail: "restarted"}) })
	}
	w.after(60*time.Second, func() { w.faulty = false })
	limit := Instant(20 * time.Minute)
	for w.queue.Len() > 0 && len(w.bad) == 0 {
		e, ok := heap.Pop(&w.queue).(simEvent)
		if !ok || e.at > limit {
			break
		}
		w.now = e.at
		e.do()
	}
	w.now = limit
	w.settle()
	for _, x := range w.ids {
		if x.d != nil {
			outcomes[string(x.d.End().Outcome)+"/"+string(x.d.End().Code)]++
		}
	}
	return w.bad
}

// settle checks what must hold when nothing happens any more.
func (w *simWorld) settle() {
	for _, x := range w.ids {
		if x.p != nil && (!x.p.State().Terminal() || x.pEnded != 1 || x.pFreed != 1 || x.p.InFlight() != 0) {
			w.fail("id %d: sender is %s, ended %d times, pages freed %d times, %d chunks in flight", x.n, x.p.State(), x.pEnded, x.pFreed, x.p.InFlight())
		}
		if x.d != nil && (!x.d.State().Terminal() || x.dEnded != 1 || x.dFreed != 1 || x.d.Given() != 0) {
			w.fail("id %d: receiver is %s, ended %d times, pages freed %d times, budget %d", x.n, x.d.State(), x.dEnded, x.dFreed, x.d.Given())
		}
	}
	if w.inflight != 0 {
		w.fail("budget of %d bytes never came back", w.inflight)
	}
}
