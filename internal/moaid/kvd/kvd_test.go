package kvd

import (
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// twoNodes gives linked daemons with an engine each, and the pair.
func twoNodes(t *testing.T, enc api.Encryption, change func(*Options)) (p, d *node, pe, de *fake) {
	t.Helper()
	p, d = newNode(t, "p", change), newNode(t, "d", change)
	link(t, p, d, enc)
	pe, de = p.engine("prefill", "prefill", testFingerprint()), d.engine("decode", "decode", testFingerprint())
	pair(t, p, d)
	return p, d, pe, de
}

func TestBytesMove(t *testing.T) {
	for _, enc := range []api.Encryption{api.EncryptionAEAD, api.EncryptionNone} {
		t.Run(string(enc), func(t *testing.T) {
			p, d, pe, de := twoNodes(t, enc, nil)
			fp := testFingerprint()
			for _, c := range []struct{ tokens, from int }{{1, 0}, {16, 0}, {17, 0}, {700, 0}, {700, 64}, {5, 5}, {2000, 1999}} {
				id, hash := newID(), tokenHash(c.tokens, "a")
				payload := must[kvcache.Payload](t, "payload")(fp.PayloadFor(c.tokens))
				de.claim(id, c.tokens, hash, c.from)
				pe.prefill(id, c.tokens, hash, true)
				v := de.verdict(id)
				if v.Verdict != enginesock.Ready {
					t.Fatalf("%+v: %+v", c, v)
				}
				want := kvcache.TotalBytes(fp.Needed(payload, c.from)) * 2
				if got := de.compare(id, v); got != want {
					t.Errorf("%+v: %d bytes, geometry gives %d", c, got, want)
				}
				de.load(id, true)
				if end := pe.released(id); end.Outcome != enginesock.Committed {
					t.Errorf("%+v: sender ended %+v", c, end)
				}
				x := d.waitState(id, "committed")
				if x.BytesMoved != want || x.BytesExpected != want || x.Encryption != string(enc) {
					t.Errorf("%+v: %+v, want %d bytes", c, x, want)
				}
			}
			p.noPages()
			d.noPages()
			m := string(must[[]byte](t, "metrics")(d.c.Metrics(t.Context())))
			for _, want := range []string{`moai_kv_bytes_total{direction="received",encryption="` + string(enc) + `",peer="p"}`, `moai_transfers_total{direction="receive",outcome="committed",reason=""} 7`, "go_goroutines", `moai_sessions_up{kind="peer"} 1`} {
				if !strings.Contains(m, want) {
					t.Errorf("metrics lack %s", want)
				}
			}
		})
	}
}

func TestManyAtOnceWithinBudget(t *testing.T) {
	p, d, pe, de := twoNodes(t, api.EncryptionAEAD, nil)
	var ids []string
	for range 8 {
		id := newID()
		ids = append(ids, id)
		de.claim(id, 900, tokenHash(900, "a"), 0)
		pe.prefill(id, 900, tokenHash(900, "a"), true)
	}
	for _, id := range ids {
		de.compare(id, de.verdict(id))
		de.load(id, true)
		pe.released(id)
	}
	p.noPages()
	d.noPages()
}

func TestWrongPromptIsNeverLoaded(t *testing.T) {
	p, d, pe, de := twoNodes(t, api.EncryptionAEAD, nil)
	id := newID()
	pe.prefill(id, 100, tokenHash(100, "a"), true)
	de.claim(id, 100, tokenHash(100, "bb"), 0)
	if v := de.verdict(id); v.Verdict != enginesock.Failed || v.Code != enginesock.FailTokenHash {
		t.Fatalf("%+v", v)
	}
	if end := pe.released(id); end.Outcome != enginesock.Aborted || !strings.Contains(end.Reason, "token_hash") {
		t.Errorf("%+v", end)
	}
	p.noPages()
	d.noPages()
}

func TestExtendedClaim(t *testing.T) {
	_, d, pe, de := twoNodes(t, api.EncryptionAEAD, nil)
	id, hash := newID(), tokenHash(320, "a")
	de.claim(id, 320, hash, 160)
	pe.prefill(id, 320, hash, true)
	first := de.verdict(id)
	de.claim(id, 320, hash, 16)
	v := de.verdict(id)
	if first.FromToken != 160 || v.FromToken != 16 {
		t.Fatalf("from %d, then %d", first.FromToken, v.FromToken)
	}
	fp := testFingerprint()
	payload := must[kvcache.Payload](t, "payload")(fp.PayloadFor(320))
	want := 2 * kvcache.TotalBytes(fp.Needed(payload, 16))
	if got := de.compare(id, v); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	de.load(id, true)
	pe.released(id)
	if x := d.waitState(id, "committed"); x.BytesMoved != want {
		t.Errorf("moved %d bytes, want %d: nothing is sent twice", x.BytesMoved, want)
	}
}

func TestEndsWithoutLoading(t *testing.T) {
	p, d, pe, de := twoNodes(t, api.EncryptionAEAD, func(o *Options) { o.Timeouts.Grace = 50 * time.Millisecond })
	ctx := t.Context()
	for name, c := range map[string]struct {
		store   bool
		act     func(id string)
		verdict enginesock.FailureCode
		sender  enginesock.Outcome
	}{
		"withdrawn": {false, func(id string) { pe.sched.Withdraw(id, "client left") }, enginesock.FailWithdrawn, enginesock.Withdrawn},
		"cancelled at decode": {false, func(id string) {
			if err := d.c.CancelTransfer(ctx, id); err != nil {
				t.Error(err)
			}
		}, enginesock.FailCancelled, enginesock.Aborted},
		"cancelled at prefill": {false, func(id string) {
			if err := p.c.CancelTransfer(ctx, id); err != nil {
				t.Error(err)
			}
		}, enginesock.FailCancelled, enginesock.Aborted},
		"released":    {true, func(id string) { de.sched.Release(id, "own cache") }, "", enginesock.Aborted},
		"load failed": {true, func(id string) { de.load(id, false) }, "", enginesock.Aborted},
	} {
		id, hash := newID(), tokenHash(300, "a")
		pe.prefill(id, 300, hash, c.store)
		de.claim(id, 300, hash, 0)
		if c.store {
			de.verdict(id)
		} else {
			d.waitState(id, "receiving")
		}
		c.act(id)
		if c.verdict != "" {
			if v := de.verdict(id); v.Code != c.verdict {
				t.Errorf("%s: %+v", name, v)
			}
		}
		if end := pe.released(id); end.Outcome != c.sender {
			t.Errorf("%s: sender ended %+v", name, end)
		}
		d.waitState(id, "aborted")
	}
	p.noPages()
	d.noPages()
}

func TestDeadlines(t *testing.T) {
	p, d, pe, de := twoNodes(t, api.EncryptionAEAD, func(o *Options) {
		o.Timeouts.Reserve, o.Timeouts.Offer, o.Timeouts.Claim = 300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond
		o.Timeouts.Progress, o.Timeouts.Load, o.Timeouts.Grace = 300*time.Millisecond, 300*time.Millisecond, 50*time.Millisecond
	})
	never, hash := newID(), tokenHash(50, "a")
	de.claim(never, 50, hash, 0)
	pe.sched.Reserve("00"+newID()[2:], 50, nil)
	unclaimed := newID()
	pe.prefill(unclaimed, 50, hash, true)
	unstored := newID()
	pe.prefill(unstored, 50, hash, false)
	de.claim(unstored, 50, hash, 0)
	unloaded := newID()
	pe.prefill(unloaded, 50, hash, true)
	de.claim(unloaded, 50, hash, 0)
	if v := de.verdict(never); v.Code != enginesock.FailNotOffered {
		t.Errorf("never offered: %+v", v)
	}
	if end := pe.released(unclaimed); end.Outcome != enginesock.Expired {
		t.Errorf("unclaimed: %+v", end)
	}
	if v := de.verdict(unstored); v.Code != enginesock.FailDeadline {
		t.Errorf("unstored: %+v", v)
	}
	de.verdict(unloaded)
	if x := d.waitState(unloaded, "aborted"); !strings.Contains(x.Reason, "deadline") {
		t.Errorf("unloaded: %+v", x)
	}
	p.noPages()
	d.noPages()
}

func TestDecodeDaemonRestarts(t *testing.T) {
	p, d, pe, de := twoNodes(t, api.EncryptionAEAD, nil)
	id, hash := newID(), tokenHash(400, "a")
	pe.prefill(id, 400, hash, false)
	de.claim(id, 400, hash, 0)
	d.waitState(id, "receiving")
	before := must[*api.EngineStatus](t, "engine")(d.c.GetEngine(t.Context(), "decode", 0))
	d.stop()
	d.start()
	st := must[*api.EngineStatus](t, "engine")(d.c.GetEngine(t.Context(), "decode", patience))
	if !st.Ready || st.Generation != before.Generation {
		t.Fatalf("after the restart: %+v", st)
	}
	if !strings.Contains(d.logs.String(), "arena adopted") {
		t.Error("the arena was not adopted")
	}
	// The client claims again by itself; the stored bytes come when they exist.
	pe.store(id, 400)
	v := de.verdict(id)
	if v.Verdict != enginesock.Ready {
		t.Fatalf("%+v", v)
	}
	de.compare(id, v)
	de.load(id, true)
	if end := pe.released(id); end.Outcome != enginesock.Committed {
		t.Errorf("%+v", end)
	}
	p.noPages()
	d.noPages()
}

func TestPrefillDaemonRestarts(t *testing.T) {
	p, d, pe, de := twoNodes(t, api.EncryptionAEAD, nil)
	id, hash := newID(), tokenHash(400, "a")
	pe.prefill(id, 400, hash, false)
	de.claim(id, 400, hash, 0)
	d.waitState(id, "receiving")
	p.stop()
	p.start()
	if v := de.verdict(id); v.Code != enginesock.FailPeerGone {
		t.Errorf("%+v", v)
	}
	if end := pe.released(id); end.Outcome != enginesock.Aborted {
		t.Errorf("%+v", end)
	}
	again := newID()
	eventually(t, "the prefill engine is ready again", func() bool {
		st, err := p.c.GetEngine(t.Context(), "prefill", 0)
		return err == nil && st.Ready
	})
	pe.prefill(again, 400, hash, true)
	de.claim(again, 400, hash, 0)
	de.compare(again, de.verdict(again))
	de.load(again, true)
	pe.released(again)
	p.noPages()
	d.noPages()
}

// TestLinkBreaksWithinTransfer: only the missing ranges are sent again.
func TestLinkBreaksWithinTransfer(t *testing.T) {
	p, d, pe, de := twoNodes(t, api.EncryptionAEAD, nil)
	id, hash := newID(), tokenHash(600, "a")
	fp := testFingerprint()
	payload := must[kvcache.Payload](t, "payload")(fp.PayloadFor(600))
	pe.prefill(id, 600, hash, false)
	de.claim(id, 600, hash, 0)
	s, _ := pe.sched.Sending(id)
	if err := pe.work[0].Arena(s.Instance, func(mem []byte) error {
		off := int64(0)
		for _, e := range s.Extents[0] {
			for i := range e.Length {
				mem[e.Offset+i] = slot(id, 0, off+i)
			}
			off += e.Length
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	pe.work[0].Stored(id, []kvcache.Range{{Offset: 0, Length: payload.Bytes}})
	eventually(t, "one rank's bytes are there", func() bool { x, _ := d.find(id); return x.BytesMoved == payload.Bytes })
	_ = p.d.own.call(t.Context(), func() { p.d.peers["d"].s.Close(10, "test") })
	eventually(t, "a new session", func() bool {
		n := 0
		_ = d.d.own.call(t.Context(), func() { n = int(d.d.sessionNum) })
		return n > 1
	})
	pe.store(id, 600)
	v := de.verdict(id)
	de.compare(id, v)
	de.load(id, true)
	pe.released(id)
	if x := d.waitState(id, "committed"); x.BytesMoved != 2*payload.Bytes {
		t.Errorf("moved %d bytes, want %d", x.BytesMoved, 2*payload.Bytes)
	}
}

func TestNewGenerationEndsTheOld(t *testing.T) {
	p, d, pe, de := twoNodes(t, api.EncryptionAEAD, nil)
	id, hash := newID(), tokenHash(400, "a")
	pe.prefill(id, 400, hash, false)
	de.claim(id, 400, hash, 0)
	d.waitState(id, "receiving")
	pe.stop()
	pe.start(p, "prefill")
	if v := de.verdict(id); v.Code != enginesock.FailWithdrawn {
		t.Errorf("%+v", v)
	}
	p.noPages()
}

func TestRefusals(t *testing.T) {
	p, d := newNode(t, "p", nil), newNode(t, "d", nil)
	link(t, p, d, api.EncryptionAEAD)
	other := testFingerprint()
	other.Groups = append([]kvcache.Group(nil), other.Groups...)
	other.Groups[0].KeyDim = 128
	pe, de := p.engine("prefill", "prefill", other), d.engine("decode", "decode", testFingerprint())
	id, hash := newID(), tokenHash(40, "a")
	pe.prefill(id, 40, hash, true)
	de.claim(id, 40, hash, 0)
	if v := de.verdict(id); v.Code != enginesock.FailNotPaired {
		t.Errorf("without a pair: %+v", v)
	}
	pair(t, d) // p does not allow it
	id = newID()
	de.claim(id, 40, hash, 0)
	if v := de.verdict(id); v.Code != enginesock.FailNotPaired {
		t.Errorf("paired here only: %+v", v)
	}
	pair(t, p)
	id = newID()
	pe.prefill(id, 40, hash, true)
	de.claim(id, 40, hash, 0)
	if v := de.verdict(id); v.Code != enginesock.FailIncompatible || !strings.Contains(v.Reason, "group") {
		t.Errorf("other geometry: %+v", v)
	}
	st := must[*api.EngineStatus](t, "engine")(d.c.GetEngine(t.Context(), "decode", 0))
	if len(st.Incompatible) != 1 || !strings.Contains(st.Incompatible[0], "p/prefill") {
		t.Errorf("status says %q", st.Incompatible)
	}
	id = newID()
	de.sched.Claim(enginesock.Claim{ID: id, Tokens: 40, TokenHash: hash, Source: enginesock.Endpoint{Node: "elsewhere", Engine: "prefill"}})
	if v := de.verdict(id); v.Code != enginesock.FailUnknownSource {
		t.Errorf("no link: %+v", v)
	}
}
