package conformance

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// within bounds the wait for anything that should come at once.
const within = 10 * time.Second

// Fingerprint is of the small cache that the suite's engines have: two groups, a
// page of 128 bytes.
func Fingerprint() kvcache.Fingerprint {
	return kvcache.Fingerprint{Version: kvcache.Version, Model: kvcache.Model{Config: "m", Weights: "m", Tokenizer: "m"}, Engine: kvcache.Engine{Family: "conformance", Release: "1"},
		Storage: kvcache.Storage{DType: kvcache.BF16, Scales: kvcache.Scales{Kind: kvcache.ScaleNone}, Order: kvcache.OrderLBHNC, Packing: kvcache.PackingPacked, BlockSize: 4, KernelBlock: 4},
		Ranks:   kvcache.Ranks{Tensor: 1, Pipeline: 1},
		Groups:  []kvcache.Group{{Kind: kvcache.GroupFull, Heads: 1, KeyDim: 8, ValueDim: 8, Layers: []int{0, 2}}, {Kind: kvcache.GroupSliding, Heads: 1, KeyDim: 8, ValueDim: 8, Window: 8, Layers: []int{1, 3}}},
	}
}

const (
	tokens  = 30
	staging = 1 << 20
)

// Run puts daemons and clients through the whole suite.
func Run(t *testing.T, h Harness, f Factory) {
	pair := h(t, Options{Fingerprint: Fingerprint(), Staging: staging})
	for _, c := range []struct {
		name string
		run  func(*testing.T, *env)
	}{
		{"HelloErrors", helloErrors},
		{"FirstRequestMustBeHello", firstRequest},
		{"UnknownType", unknownType},
		{"MalformedPacketsEndTheSession", malformed},
		{"ArenaIsSealed", sealed},
		{"RepeatedRequestsHaveNoEffect", idempotent},
		{"OtherContentConflicts", conflicts},
		{"UnknownIDs", unknownIDs},
		{"WholeFlow", wholeFlow},
		{"StoredInPieces", storedInPieces},
		{"LateOffer", lateOffer},
		{"ClaimedTwice", claimedTwice},
		{"FromToken", fromToken},
		{"ClaimExtended", claimExtended},
		{"Withdraw", withdraw},
		{"ReleaseBeforeReady", releaseEarly},
		{"ReleaseWhileLoading", releaseLoading},
		{"OneReportARankAndID", oneReport},
		{"LoadFailed", loadFailed},
		{"OtherPrompt", otherPrompt},
		{"UnknownSource", unknownSource},
		{"SecondSchedulerReplaces", replaced},
		{"NewGenerationEndsTheOld", newGeneration},
		{"SameGenerationComesBack", comesBack},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, newEnv(t, pair, f)) })
	}
	t.Run("AdoptAfterRestart", func(t *testing.T) {
		adopt(t, newEnv(t, h(t, Options{Fingerprint: Fingerprint(), Staging: staging}), f))
	})
	t.Run("NoRoomThenRoom", func(t *testing.T) {
		noRoom(t, newEnv(t, h(t, Options{Fingerprint: Fingerprint(), Staging: staging, Fast: true}), f))
	})
	t.Run("Deadlines", func(t *testing.T) {
		deadlines(t, newEnv(t, h(t, Options{Fingerprint: Fingerprint(), Staging: staging, Fast: true}), f))
	})
}

// env is the sessions of one case.
type env struct {
	t      *testing.T
	pair   Pair
	client Factory

	genP, genD string
	p, pw      Client // prefill's scheduler and worker
	d, dw      Client
}

func newEnv(t *testing.T, pair Pair, f Factory) *env {
	return &env{t: t, pair: pair, client: f, genP: newID(), genD: newID()}
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (e *env) hello(s Side, kind enginesock.SessionKind, generation string) enginesock.Hello {
	return enginesock.Hello{Version: enginesock.Version, Engine: s.Engine, Generation: generation, Session: kind, World: 1, Fingerprint: Fingerprint()}
}

func (e *env) connect(s Side, kind enginesock.SessionKind, generation string) Client {
	e.t.Helper()
	c := e.client(e.t)
	if _, err := c.Connect(s.Socket, e.hello(s, kind, generation)); err != nil {
		e.t.Fatalf("%s of %s: %v", kind, s.Engine, err)
	}
	return c
}

// open opens all four sessions and both arenas.
func (e *env) open() {
	e.t.Helper()
	e.p = e.connect(e.pair.Prefill, enginesock.Scheduler, e.genP)
	e.pw = e.connect(e.pair.Prefill, enginesock.Worker, e.genP)
	e.d = e.connect(e.pair.Decode, enginesock.Scheduler, e.genD)
	e.dw = e.connect(e.pair.Decode, enginesock.Worker, e.genD)
	for _, w := range []Client{e.pw, e.dw} {
		if ok, err := w.OpenArena(); err != nil || ok.Bytes < 1 || ok.Arena == "" {
			e.t.Fatalf("arena: %+v, %v", ok, err)
		}
	}
}

func (e *env) ok(c Client, r enginesock.Request) *enginesock.OK {
	e.t.Helper()
	ok, err := c.Request(r)
	if err != nil {
		e.t.Fatalf("%s: %v", r.Type(), err)
	}
	return ok
}

// refused checks that a request is answered with one of the codes.
func (e *env) refused(c Client, r enginesock.Request, codes ...enginesock.Code) {
	e.t.Helper()
	_, err := c.Request(r)
	var got *enginesock.Error
	if !errors.As(err, &got) || !slices.Contains(codes, got.Code) {
		e.t.Fatalf("%s: got %v, want code %v", r.Type(), err, codes)
	}
}

// event waits for an event of the id and of type T; others of other ids are passed over.
func event[T enginesock.Reply](e *env, c Client, id string) T {
	e.t.Helper()
	deadline := time.Now().Add(within)
	for {
		r, err := c.Event(time.Until(deadline))
		if err != nil {
			e.t.Fatalf("waiting for %T of %s: %v", *new(T), id, err)
		}
		if got, ok := r.(T); ok && (id == "" || eventID(r) == id) {
			return got
		}
	}
}

// silent checks that nothing more is said of the id.
func (e *env) silent(c Client, id string) {
	e.t.Helper()
	for {
		r, err := c.Event(100 * time.Millisecond)
		if err != nil {
			return
		}
		if eventID(r) == id {
			e.t.Fatalf("%s was said of %s, which had ended", r.Type(), id)
		}
	}
}

func eventID(r enginesock.Reply) string {
	switch m := r.(type) {
	case *enginesock.Released:
		return m.ID
	case *enginesock.VerdictEvent:
		return m.ID
	case *enginesock.Closed:
		return m.ID
	}
	return ""
}

func prompt(n int) string {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = i
	}
	return kvcache.TokenHash(ids)
}

func (e *env) payload(n int) kvcache.Payload {
	e.t.Helper()
	fp := Fingerprint()
	p, err := fp.PayloadFor(n)
	if err != nil {
		e.t.Fatal(err)
	}
	return p
}

func (e *env) reserve(id string, n int) []enginesock.Extent {
	e.t.Helper()
	ok := e.ok(e.p, &enginesock.Reserve{ID: id, Tokens: n, Target: &enginesock.Endpoint{Node: e.pair.Decode.Node, Engine: e.pair.Decode.Engine}})
	if len(ok.Extents) != 1 {
		e.t.Fatalf("reserve: %d lists of extents for one rank", len(ok.Extents))
	}
	if got, want := length(ok.Extents[0]), e.payload(n).Bytes; got != want {
		e.t.Fatalf("reserve: extents of %d bytes for a payload of %d", got, want)
	}
	return ok.Extents[0]
}

func (e *env) offer(id string, n int) {
	e.t.Helper()
	e.ok(e.p, &enginesock.Offer{ID: id, Tokens: n, TokenHash: prompt(n)})
}

func (e *env) claim(id string, n, from int) *enginesock.OK {
	e.t.Helper()
	ok, err := e.d.Claim(enginesock.Claim{ID: id, Tokens: n, TokenHash: prompt(n), FromToken: from,
		Source: enginesock.Endpoint{Node: e.pair.Prefill.Node, Engine: e.pair.Prefill.Engine}})
	if err != nil {
		e.t.Fatalf("claim: %v", err)
	}
	return ok
}

// fill writes random bytes as the payload and returns them.
func (e *env) fill(extents []enginesock.Extent) []byte {
	e.t.Helper()
	want := make([]byte, length(extents))
	_, _ = rand.Read(want) // never fails
	rest := want
	for _, x := range extents {
		if err := e.pw.Write(x.Offset, rest[:x.Length]); err != nil {
			e.t.Fatal(err)
		}
		rest = rest[x.Length:]
	}
	return want
}

func (e *env) stored(id string, ranges ...kvcache.Range) {
	e.t.Helper()
	e.ok(e.pw, &enginesock.Stored{ID: id, Ranges: ranges})
}

// ready waits until the stored verdict is ready.
func (e *env) ready(id string) enginesock.ClaimState {
	e.t.Helper()
	s := e.verdict(id)
	if s.Verdict != enginesock.Ready {
		e.t.Fatalf("verdict %+v, want ready", s)
	}
	return s
}

func (e *env) verdict(id string) enginesock.ClaimState {
	e.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); ; <-tick.C {
		s, err := e.d.Poll(id)
		if err != nil {
			e.t.Fatal(err)
		}
		if s.Verdict != enginesock.Pending {
			return s
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("the claim of %s is pending after %v", id, within)
		}
	}
}

// same checks that what was received is what was sent, and nothing else.
func (e *env) same(s enginesock.ClaimState, payload []byte, from int) {
	e.t.Helper()
	fp := Fingerprint()
	needed := fp.Needed(e.payload(tokens), from)
	if s.FromToken != from || kvcache.TotalBytes(s.Ranges) != kvcache.TotalBytes(needed) || len(s.Extents) != 1 {
		e.t.Fatalf("verdict from token %d with %d bytes, want %d with %d", s.FromToken, kvcache.TotalBytes(s.Ranges), from, kvcache.TotalBytes(needed))
	}
	var want, got []byte
	for _, r := range s.Ranges {
		want = append(want, payload[r.Offset:r.Offset+r.Length]...)
	}
	for _, x := range s.Extents[0] {
		b, err := e.dw.Read(x.Offset, x.Length)
		if err != nil {
			e.t.Fatal(err)
		}
		got = append(got, b...)
	}
	if !bytes.Equal(got, want) {
		e.t.Fatal("the bytes that arrived are not those that were stored")
	}
}

func (e *env) loaded(id string, ok bool) {
	e.t.Helper()
	if err := e.dw.Loaded(id, ok); err != nil {
		e.t.Fatalf("loaded: %v", err)
	}
}

// ended checks how both sides are told of the end.
func (e *env) ended(id string, d, p enginesock.Outcome) {
	e.t.Helper()
	if d != "" {
		if c := event[*enginesock.Closed](e, e.d, id); c.Outcome != d {
			e.t.Fatalf("decode was told %q, want %q", c.Outcome, d)
		}
	}
	r := event[*enginesock.Released](e, e.p, id)
	if r.Outcome != p {
		e.t.Fatalf("prefill was told %q (%s), want %q", r.Outcome, r.Reason, p)
	}
	e.silent(e.p, id)
}

func length(xs []enginesock.Extent) int64 {
	var n int64
	for _, x := range xs {
		n += x.Length
	}
	return n
}

func whole(p kvcache.Payload) kvcache.Range { return kvcache.Range{Length: p.Bytes} }
