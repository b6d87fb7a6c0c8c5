package kvd

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
)

// replicas registers a fake engine with data-parallel replicas and starts them.
func (n *node) replicas(name, role string, fp kvcache.Fingerprint, data int) []*fake {
	t := n.t
	t.Helper()
	reg := registration(n, name, role, fp)
	reg.DataSize = data
	h := serveHTTP(t, reg.HTTPSocket)
	must[*api.EngineStatus](t, "engine")(n.c.PutEngine(t.Context(), reg))
	var out []*fake
	for rank := range data {
		if rank > 0 {
			why := "data-parallel rank " + strconv.Itoa(rank)
			eventually(t, "the engine waits for "+why, func() bool {
				st := must[*api.EngineStatus](t, "engine")(n.c.GetEngine(t.Context(), name, 0))
				return !st.Ready && strings.Contains(st.Reason, why)
			})
		}
		f := &fake{t: t, fp: fp, http: h, dataRank: rank, dataSize: data}
		f.start(n, name)
		out = append(out, f)
	}
	if st := must[*api.EngineStatus](t, "engine")(n.c.GetEngine(t.Context(), name, patience)); !st.Ready || st.StagingFree != reg.StagingBytes {
		t.Fatalf("%+v", st)
	}
	return out
}

// withReplicas gives linked daemons: a prefill engine with one replica, a decode
// engine with two.
func withReplicas(t *testing.T) (p, d *node, pe *fake, des []*fake) {
	t.Helper()
	p, d = newNode(t, "p", shortGrace), newNode(t, "d", shortGrace)
	link(t, p, d, api.EncryptionAEAD)
	pe, des = p.engine("prefill", "prefill", plain(1)), d.replicas("decode", "decode", plain(2), 2)
	pairWith(t, kvcompat.Options{}, p, d)
	return p, d, pe, des
}

// The daemon chooses the replica whose arenas the bytes go to, and tells the engine.
func TestHeldRequestsGoToTheirReplica(t *testing.T) {
	p, d, pe, des := withReplicas(t)
	const tokens = 60
	hash := tokenHash(tokens, "a")
	used := make(chan int, 4)
	des[0].http.answers(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(headerTransfer)
		rank, err := strconv.Atoi(r.Header.Get(headerDataRank))
		if err != nil || rank < 0 || rank > 1 {
			t.Errorf("header %s: %q", headerDataRank, r.Header.Get(headerDataRank))
			return
		}
		de := des[rank]
		de.claim(id, tokens, hash, 0)
		v := de.verdict(id)
		if n, err := de.readCells(id, tokens, v, mixed(id)); err != nil || n != elements(de, tokens) {
			t.Errorf("%d elements, %v", n, err)
		}
		de.load(id, true)
		used <- rank
	})
	var ids []string
	answered := make(chan string, 4)
	for range 4 {
		id := newID()
		ids = append(ids, id)
		h := held(id)
		h.Set(headerDataRank, "7") // the client's word does not count
		go func() {
			resp, body := get(t.Context(), t, d, "decode", "/x", h)
			if resp == nil || resp.Header.Get(headerVerdict) != "ready" {
				t.Errorf("%v %s", resp, body)
			}
			answered <- id
		}()
		d.waitState(id, "claimed")
	}
	for _, id := range ids {
		pe.prefill(id, tokens, hash, false)
		pe.storeCells(id, tokens, mixed(id))()
	}
	count := map[int]int{}
	for range ids {
		<-answered
		count[<-used]++
	}
	if count[0] != 2 || count[1] != 2 {
		t.Errorf("requests by replica: %v", count)
	}
	for _, id := range ids {
		if x := d.waitState(id, "committed"); x.DataRank != 0 && x.DataRank != 1 {
			t.Errorf("%+v", x)
		}
	}
	p.noPages()
	d.noPages()
}

// An engine that gives a request to another replica than was chosen computes it
// anew: nobody waits, and nothing stays.
func TestAnotherReplicaClaims(t *testing.T) {
	p, d, pe, des := withReplicas(t)
	const tokens = 60
	hash := tokenHash(tokens, "a")
	for _, stored := range []bool{false, true} {
		id := newID()
		seen := make(chan enginesock.ClaimState, 1)
		claim := func(r *http.Request) {
			chosen, _ := strconv.Atoi(r.Header.Get(headerDataRank))
			other := des[1-chosen]
			other.claim(id, tokens, hash, 0)
			seen <- other.verdict(id)
		}
		des[0].http.answers(nil)
		if stored {
			des[0].http.answers(func(_ http.ResponseWriter, r *http.Request) { claim(r) })
		}
		pe.prefill(id, tokens, hash, false)
		if stored {
			pe.storeCells(id, tokens, mixed(id))()
		}
		done := make(chan string, 1)
		go func() {
			resp, body := get(t.Context(), t, d, "decode", "/x", held(id))
			if resp == nil {
				done <- body
				return
			}
			done <- resp.Header.Get(headerVerdict)
		}()
		want := "ready"
		if !stored { // it comes to the engine by another way, while the daemon holds it
			x := d.waitState(id, "receiving")
			claim(&http.Request{Header: http.Header{headerDataRank: {strconv.Itoa(x.DataRank)}}})
			want = "failed; code=" + string(enginesock.FailCancelled)
		}
		if v := <-seen; v.Verdict != enginesock.Failed || v.Code != enginesock.FailCancelled || !strings.Contains(v.Reason, headerDataRank) {
			t.Errorf("stored %v: %+v", stored, v)
		}
		if got := <-done; got != want {
			t.Errorf("stored %v: the held request was told %q", stored, got)
		}
		if end := pe.released(id); end.Outcome != enginesock.Aborted {
			t.Errorf("stored %v: %+v", stored, end)
		}
	}
	p.noPages()
	d.noPages()
}

// What one replica claimed itself is no other's.
func TestReplicasDoNotShareIDs(t *testing.T) {
	p, d := newNode(t, "p", shortGrace), newNode(t, "d", shortGrace)
	link(t, p, d, api.EncryptionAEAD)
	pes, des := p.replicas("prefill", "prefill", plain(2), 2), d.replicas("decode", "decode", plain(1), 2)
	pairWith(t, kvcompat.Options{}, p, d)
	const tokens = 60
	hash := tokenHash(tokens, "a")
	for i := range 2 {
		id, pe, de := newID(), pes[i], des[1-i]
		pe.prefill(id, tokens, hash, false)
		de.claim(id, tokens, hash, 0)
		pes[1-i].sched.Reserve(id, tokens, nil)
		eventually(t, "a refusal", func() bool { s, _ := pes[1-i].sched.Sending(id); return s.Err != nil })
		pes[1-i].work[0].Stored(id, []kvcache.Range{{Length: 1}}) // refused: the id is the other's
		des[i].claim(id, tokens, hash, 0)
		if v := des[i].verdict(id); v.Verdict != enginesock.Failed {
			t.Errorf("%+v", v)
		}
		pe.storeCells(id, tokens, mixed(id))()
		v := de.verdict(id)
		if n, err := de.readCells(id, tokens, v, mixed(id)); err != nil || n != elements(de, tokens) {
			t.Fatalf("%d elements, %v", n, err)
		}
		de.load(id, true)
		pe.released(id)
		if x := d.waitState(id, "committed"); x.DataRank != 1-i {
			t.Errorf("%+v", x)
		}
		if x := p.waitState(id, "committed"); x.DataRank != i {
			t.Errorf("%+v", x)
		}
	}
	// A replica that starts anew ends its own transfers only.
	ids := [2]string{newID(), newID()}
	for i, id := range ids {
		pes[i].prefill(id, tokens, hash, false)
	}
	before := must[*api.EngineStatus](t, "engine")(p.c.GetEngine(t.Context(), "prefill", 0)).Generation
	pes[1].stop()
	pes[1].start(p, "prefill")
	p.waitState(ids[1], "aborted")
	if x, _ := p.find(ids[0]); x.State != "offered" {
		t.Errorf("%+v", x)
	}
	if after := must[*api.EngineStatus](t, "engine")(p.c.GetEngine(t.Context(), "prefill", patience)); after.Generation == before || len(after.Generation) != 32 {
		t.Errorf("generation %q, before %q", after.Generation, before)
	}
}

// An engine says something of its load when all of its replicas do.
func TestStatsOfReplicasAreSummed(t *testing.T) {
	n := newNode(t, "d", nil)
	fs := n.replicas("decode", "decode", plain(1), 2)
	stats := func() *api.EngineStats {
		return must[*api.EngineStatus](t, "engine")(n.c.GetEngine(t.Context(), "decode", 0)).Stats
	}
	fs[0].sched.Report(enginesock.Stats{Waiting: 1, Running: 2, KVBlocksFree: 3, KVBlocksTotal: 4, StepMicrosP50: 50, StepMicrosP99: 90})
	eventually(t, "the first report is there", func() bool {
		there := false
		_ = n.d.own.call(t.Context(), func() { there = n.d.engines["decode"].replicas[0].stats != nil })
		return there
	})
	if s := stats(); s != nil {
		t.Errorf("half of an engine says %+v", s)
	}
	eventually(t, "the sum", func() bool {
		fs[0].sched.Report(enginesock.Stats{Waiting: 1, Running: 2, KVBlocksFree: 3, KVBlocksTotal: 4, StepMicrosP50: 50, StepMicrosP99: 90})
		fs[1].sched.Report(enginesock.Stats{Waiting: 10, Running: 20, KVBlocksFree: 30, KVBlocksTotal: 40, StepMicrosP50: 40, StepMicrosP99: 99})
		s := stats()
		return s != nil && *s == api.EngineStats{Waiting: 11, Running: 22, KVBlocksFree: 33, KVBlocksTotal: 44, StepMicrosP50: 50, StepMicrosP99: 99}
	})
}

// Sessions must name a replica that was registered.
func TestHelloOfReplicas(t *testing.T) {
	n := newNode(t, "d", nil)
	reg := registration(n, "decode", "decode", plain(1))
	reg.DataSize = 2
	must[*api.EngineStatus](t, "engine")(n.c.PutEngine(t.Context(), reg))
	for _, c := range []struct {
		rank, size int
		ok         bool
	}{{0, 0, false}, {0, 1, false}, {0, 3, false}, {0, 2, true}, {1, 2, true}} {
		s := dialRaw(t, n)
		r, _, err := s.ask(&enginesock.Hello{Version: enginesock.Version, Engine: "decode", Generation: newID(), Session: enginesock.Scheduler, World: 1, DataRank: c.rank, DataSize: c.size, Fingerprint: plain(1)}, nil)
		if err != nil || (r.Type() == enginesock.TypeOK) != c.ok {
			t.Errorf("%+v: %+v %v", c, r, err)
		}
	}
	for _, size := range []int{-1, 65} {
		reg.DataSize = size
		if _, err := n.c.PutEngine(t.Context(), reg); err == nil || !strings.Contains(err.Error(), "data_size") {
			t.Errorf("data_size %d: %v", size, err)
		}
	}
}
