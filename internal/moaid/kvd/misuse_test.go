package kvd

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// heard keeps what is sent to a peer.
type heard struct {
	transport.Session
	node string
	got  []wire.Message
}

func (h *heard) Send(m wire.Message) error { h.got = append(h.got, m); return nil }

func (h *heard) Encryption() api.Encryption { return api.EncryptionAEAD }

// A claim that comes before its id is reserved waits. Another peer's claim of the
// same id must not take its place.
func TestEarlyClaimKeepsItsPlace(t *testing.T) {
	n := newNode(t, "p", nil)
	f := n.engine("prefill", "prefill", testFingerprint())
	must[*api.Pair](t, "pair")(n.c.PutPair(t.Context(), api.Pair{Name: "main", Prefill: []api.PeerEngine{{Node: "p", Engine: "prefill"}},
		Decode: []api.PeerEngine{{Node: "d", Engine: "decode"}, {Node: "x", Engine: "decode"}}}))
	id := newID()
	w := must[wire.ID](t, "id")(wire.ParseID(id))
	d, x := &heard{node: "d"}, &heard{node: "x"}
	claim := &wire.Claim{ID: w, SourceEngine: "prefill", ClaimantEngine: "decode", LifetimeMS: 60_000}
	if err := n.d.own.call(t.Context(), func() {
		for i, h := range []*heard{d, x} {
			ps := &peerSession{s: h, num: 1000 + n.d.sessionNum + 1, node: h.node, up: true, known: map[string]format{"decode": formatOf(testFingerprint())}}
			n.d.sessionNum += 1001
			n.d.sessions[ps.num] = ps
			ps.queue = newSendQueue(n.d, h, 0)
			n.d.claimed(ps, claim)
			for j := range maxEarly {
				other := *claim
				other.ID[0], other.ID[1], other.ID[2] = byte(j), byte(j>>8), byte(i+1)
				n.d.claimed(ps, &other)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	f.prefill(id, 20, tokenHash(20, "a"), true)
	if err := n.d.own.call(t.Context(), func() {
		if s := n.d.sends[w]; s == nil || s.m.Claimant() != "d/decode" {
			t.Error("the first claim did not get the transfer")
		}
		if a, ok := x.got[0].(*wire.Abort); !ok || a.ID != w || a.Code != wire.CodeNotOffered {
			t.Errorf("the other node was told %+v", x.got[0])
		}
		mine := 0
		for _, c := range n.d.early {
			if c.ps.node == "x" {
				mine++
			}
		}
		if mine != maxEarlyPeer {
			t.Errorf("a peer has %d early claims, its share is %d", mine, maxEarlyPeer)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// A claim that fails at once is told by its answer, and only by that.
func TestFailedClaimIsToldOnce(t *testing.T) {
	n := newNode(t, "d", nil)
	must[*api.EngineStatus](t, "engine")(n.c.PutEngine(t.Context(), registration(n, "decode", "decode", testFingerprint())))
	s := dialRaw(t, n)
	for _, r := range []enginesock.Request{
		&enginesock.Hello{Version: enginesock.Version, Engine: "decode", Generation: newID(), Session: enginesock.Scheduler, World: 2, Fingerprint: testFingerprint()},
		&enginesock.Claim{ID: newID(), Tokens: 10, TokenHash: tokenHash(10, "a"), Source: enginesock.Endpoint{Node: "nowhere", Engine: "prefill"}},
		&enginesock.Ping{},
	} {
		got, _, err := s.ask(r, nil)
		ok, is := got.(*enginesock.OK)
		if err != nil || !is || ok.Seq != r.SeqNumber() {
			t.Fatalf("%s: %+v %v", r.Type(), got, err)
		}
		if _, claim := r.(*enginesock.Claim); claim && (ok.Verdict != enginesock.Failed || ok.Code != enginesock.FailUnknownSource) {
			t.Errorf("%+v", ok)
		}
	}
}

func TestKeyIsOneNodes(t *testing.T) {
	n := newNode(t, "p", nil)
	key := must[transport.Identity](t, "key")(transport.NewIdentity()).PublicString()
	for _, e := range []api.Trust{{Name: "a", Node: "x"}, {Name: "b", Node: "x"}} {
		e.PublicKey, e.Role = key, api.RolePeer
		must[*api.Trust](t, "trust")(n.c.PutTrust(t.Context(), e))
	}
	_, err := n.c.PutTrust(t.Context(), api.Trust{Name: "c", PublicKey: key, Role: api.RolePeer, Node: "y"})
	if err == nil || !strings.Contains(err.Error(), "one node's") {
		t.Errorf("%v", err)
	}
	must[*api.Trust](t, "trust")(n.c.PutTrust(t.Context(), api.Trust{Name: "d", PublicKey: key, Role: api.RoleGateway}))
}

// A drain is not forgotten because the engine came back with another geometry.
func TestDrainOutlivesAnotherFingerprint(t *testing.T) {
	n := newNode(t, "p", nil)
	reg := registration(n, "e", "both", testFingerprint())
	must[*api.EngineStatus](t, "engine")(n.c.PutEngine(t.Context(), reg))
	must[*api.EngineStatus](t, "drain")(n.c.Drain(t.Context(), "e", true))
	reg.Fingerprint.Groups = append([]kvcache.Group(nil), reg.Fingerprint.Groups...)
	reg.Fingerprint.Groups[0].KeyDim = 128
	if st := must[*api.EngineStatus](t, "engine")(n.c.PutEngine(t.Context(), reg)); !st.Draining {
		t.Error("it does not drain any more")
	}
}

func TestDamagedEngineInState(t *testing.T) {
	n := newNode(t, "p", nil)
	must[*api.EngineStatus](t, "engine")(n.c.PutEngine(t.Context(), registration(n, "e", "both", testFingerprint())))
	n.stop()
	b := must[[]byte](t, "state")(os.ReadFile(statePath(n.dir)))
	var state map[string]any
	if err := json.Unmarshal(b, &state); err != nil {
		t.Fatal(err)
	}
	state["engines"] = map[string]any{"e": map[string]any{"name": "e"}}
	if err := os.WriteFile(statePath(n.dir), must[[]byte](t, "state")(json.Marshal(state)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(n.opts); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("%v", err)
	}
}

func TestUnknownCodesAndNamesAreNoLabels(t *testing.T) {
	if peerCode(wire.Code(4711)) != codeOther || peerCode(wire.CodeDeadline) != "deadline" || failureCode(codeOther) != enginesock.FailCancelled {
		t.Error("codes")
	}
	n := newNode(t, "p", nil)
	for _, name := range []string{"a", "b"} {
		resp, _ := get(t.Context(), t, n, name, "/x", nil)
		if resp == nil || resp.StatusCode != http.StatusNotFound {
			t.Fatalf("%v", resp)
		}
	}
	if m := string(must[[]byte](t, "metrics")(n.c.Metrics(t.Context()))); !strings.Contains(m, `moai_forwarded_total{code="unknown_engine",engine=""} 2`) {
		t.Error("names of engines that are not there made labels")
	}
}

// A claim that is taken back before its id is reserved: the prefill engine hears
// of it, and does not keep its pages until a deadline.
func TestEarlyClaimTakenBack(t *testing.T) {
	n := newNode(t, "p", shortGrace)
	f := n.engine("prefill", "prefill", testFingerprint())
	must[*api.Pair](t, "pair")(n.c.PutPair(t.Context(), api.Pair{Name: "main", Prefill: []api.PeerEngine{{Node: "p", Engine: "prefill"}},
		Decode: []api.PeerEngine{{Node: "d", Engine: "decode"}}}))
	id := newID()
	w := must[wire.ID](t, "id")(wire.ParseID(id))
	if err := n.d.own.call(t.Context(), func() {
		h := &heard{node: "d"}
		ps := &peerSession{s: h, num: 1000, node: "d", up: true, known: map[string]format{"decode": formatOf(testFingerprint())}}
		n.d.sessions[ps.num] = ps
		ps.queue = newSendQueue(n.d, h, 0)
		n.d.claimed(ps, &wire.Claim{ID: w, SourceEngine: "prefill", ClaimantEngine: "decode", LifetimeMS: 60_000})
		n.d.abortedBy(ps, &wire.Abort{ID: w, Code: wire.CodeNotNeeded, Reason: "released"})
	}); err != nil {
		t.Fatal(err)
	}
	f.sched.Reserve(id, 20, nil)
	if end := f.released(id); end.Outcome != enginesock.Aborted {
		t.Errorf("%+v", end)
	}
}

// A reason that is cut within a character would be refused by the frames that carry it.
func TestReasonsStayText(t *testing.T) {
	for lead := range 4 {
		s := clip(strings.Repeat("x", lead) + strings.Repeat("8×(64+64) …", 100))
		if !utf8.ValidString(s) || len(s) > maxReason+len("…") {
			t.Errorf("%d bytes: %q", len(s), s)
		}
	}
	if s := clip("a\xffb"); !utf8.ValidString(s) || clip("short…") != "short…" {
		t.Errorf("%q", s)
	}
}
