package conformance

import (
	"bytes"
	"crypto/rand"
	"slices"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// flow is one transfer of a case, and what both sides do for it.
type flow struct {
	*env
	id       string
	n        int // tokens
	p, d     *replica
	layout   kvcache.Payload
	own      [][]kvcache.Range     // what each rank stores
	extents  [][]enginesock.Extent // of each prefill rank, once reserved
	payloads [][]byte              // of each rank, all of it, once filled
}

// flow is a transfer of which nothing has happened yet.
func (e *env) flow() *flow {
	e.t.Helper()
	return e.flowOf(tokens)
}

func (e *env) flowOf(n int) *flow {
	e.t.Helper()
	p, err := e.format.Fingerprint.PayloadFor(n)
	if err != nil {
		e.t.Fatal(err)
	}
	return &flow{env: e, id: newID(), n: n, p: e.p, d: e.d, layout: p, own: e.format.own(p)}
}

// begun opens everything and has pages with a prompt's KV in them.
func (e *env) begun() *flow {
	e.t.Helper()
	e.open()
	f := e.flow()
	f.fill()
	return f
}

// sent is begun, offered and stored.
func (e *env) sent() *flow {
	e.t.Helper()
	f := e.begun()
	f.offer()
	f.store()
	return f
}

// arrived is sent, claimed and ready.
func (e *env) arrived() *flow {
	e.t.Helper()
	f := e.sent()
	f.claim(0)
	f.ready()
	return f
}

func (f *flow) reserveRequest() *enginesock.Reserve {
	return &enginesock.Reserve{ID: f.id, Tokens: f.n, Target: &enginesock.Endpoint{Node: f.d.side.Node, Engine: f.d.side.Engine}}
}

func (f *flow) offerRequest() *enginesock.Offer {
	return &enginesock.Offer{ID: f.id, Tokens: f.n, TokenHash: prompt(f.n)}
}

func (f *flow) claimRequest(from int) enginesock.Claim {
	return enginesock.Claim{ID: f.id, Tokens: f.n, TokenHash: prompt(f.n), FromToken: from, Source: enginesock.Endpoint{Node: f.p.side.Node, Engine: f.p.side.Engine}}
}

// reserve checks that each rank has extents for just the ranges that it stores.
func (f *flow) reserve() {
	f.t.Helper()
	ok := f.ok(f.p.sched, f.reserveRequest())
	if len(ok.Extents) != len(f.own) || len(ok.RankRanges) != len(f.own) {
		f.t.Fatalf("reserve: %d lists of extents and %d of ranges for %d ranks", len(ok.Extents), len(ok.RankRanges), len(f.own))
	}
	for rank, own := range f.own {
		if !slices.Equal(ok.RankRanges[rank], own) {
			f.t.Fatalf("reserve: rank %d stores %v, want %v", rank, ok.RankRanges[rank], own)
		}
		if got, want := length(ok.Extents[rank]), kvcache.TotalBytes(own); got != want {
			f.t.Fatalf("reserve: extents of %d bytes for the %d that rank %d stores", got, want, rank)
		}
	}
	f.extents = ok.Extents
}

// fill reserves, and writes random bytes: each rank those that it alone has.
func (f *flow) fill() {
	f.t.Helper()
	f.reserve()
	f.payloads = make([][]byte, len(f.own))
	for rank, own := range f.own {
		f.payloads[rank] = make([]byte, f.layout.Bytes)
		var stored []byte
		for _, r := range own {
			part := f.payloads[rank][r.Offset : r.Offset+r.Length]
			_, _ = rand.Read(part) // never fails
			stored = append(stored, part...)
		}
		for _, x := range f.extents[rank] {
			if err := f.p.workers[rank].Write(x.Offset, stored[:x.Length]); err != nil {
				f.t.Fatal(err)
			}
			stored = stored[x.Length:]
		}
	}
	// The sections that a rank shares are those of the lowest rank that has them.
	for rank := range f.payloads {
		for _, s := range f.layout.Sections {
			primary := f.format.Fingerprint.Primary(s.Group, rank)
			copy(f.payloads[rank][s.Offset:s.Offset+s.Bytes()], f.payloads[primary][s.Offset:])
		}
	}
}

func (f *flow) offer() {
	f.t.Helper()
	f.ok(f.p.sched, f.offerRequest())
}

// store reports all that every rank stores; a rank with nothing reports nothing.
func (f *flow) store() {
	f.t.Helper()
	for rank, own := range f.own {
		f.storeRank(rank, own...)
	}
}

func (f *flow) storeRank(rank int, ranges ...kvcache.Range) {
	f.t.Helper()
	if len(ranges) > 0 {
		f.ok(f.p.workers[rank], &enginesock.Stored{ID: f.id, Ranges: ranges})
	}
}

func (f *flow) claim(from int) *enginesock.OK {
	f.t.Helper()
	ok, err := f.d.sched.Claim(f.claimRequest(from))
	if err != nil {
		f.t.Fatalf("claim: %v", err)
	}
	return ok
}

// ready waits until the stored verdict is ready.
func (f *flow) ready() enginesock.ClaimState {
	f.t.Helper()
	s := f.verdict()
	if s.Verdict != enginesock.Ready {
		f.t.Fatalf("verdict %+v, want ready", s)
	}
	return s
}

func (f *flow) verdict() enginesock.ClaimState {
	f.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); ; <-tick.C {
		s := f.poll()
		if s.Verdict != enginesock.Pending {
			return s
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("the claim of %s is pending after %v", f.id, within)
		}
	}
}

func (f *flow) poll() enginesock.ClaimState {
	f.t.Helper()
	s, err := f.d.sched.Poll(f.id)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// failed waits until the stored verdict is failed with one of the codes.
func (f *flow) failed(codes ...enginesock.FailureCode) {
	f.t.Helper()
	if s := f.verdict(); s.Verdict != enginesock.Failed || !slices.Contains(codes, s.Code) {
		f.t.Fatalf("verdict %+v, want failed with %v", s, codes)
	}
}

// received waits until the bytes are there, and checks that on every rank they
// are what was stored for it, shared sections too, and nothing else.
func (f *flow) received(from int) {
	f.t.Helper()
	f.same(f.ready(), from)
}

func (f *flow) same(s enginesock.ClaimState, from int) {
	f.t.Helper()
	needed := f.format.Fingerprint.Needed(f.layout, from)
	if s.FromToken != from || !slices.Equal(s.Ranges, needed) || len(s.Extents) != len(f.own) {
		f.t.Fatalf("verdict from token %d with %v and extents of %d ranks, want %d with %v and %d", s.FromToken, s.Ranges, len(s.Extents), from, needed, len(f.own))
	}
	for rank, w := range f.d.workers {
		var want, got []byte
		for _, r := range needed {
			want = append(want, f.payloads[rank][r.Offset:r.Offset+r.Length]...)
		}
		for _, x := range s.Extents[rank] {
			b, err := w.Read(x.Offset, x.Length)
			if err != nil {
				f.t.Fatal(err)
			}
			got = append(got, b...)
		}
		if !bytes.Equal(got, want) {
			f.t.Fatalf("the %d bytes that arrived for rank %d are not the %d that were stored", len(got), rank, len(want))
		}
	}
}

func (f *flow) load() {
	f.t.Helper()
	for rank := range f.own {
		f.loadRank(rank, true)
	}
}

func (f *flow) loadRank(rank int, ok bool) {
	f.t.Helper()
	if err := f.d.workers[rank].Loaded(f.id, ok); err != nil {
		f.t.Fatalf("loaded of rank %d: %v", rank, err)
	}
}

// ended checks how both sides are told of the end; an empty outcome is not told.
func (f *flow) ended(d, p enginesock.Outcome) {
	f.t.Helper()
	if d != "" {
		if c := event[*enginesock.Closed](f.env, f.d.sched, f.id); c.Outcome != d {
			f.t.Fatalf("decode was told %q, want %q", c.Outcome, d)
		}
	}
	r := event[*enginesock.Released](f.env, f.p.sched, f.id)
	if r.Outcome != p {
		f.t.Fatalf("prefill was told %q (%s), want %q", r.Outcome, r.Reason, p)
	}
	f.once(f.p.sched, f.id)
}

// committed checks what arrived, loads it, and checks the end.
func (f *flow) committed(from int) {
	f.t.Helper()
	f.received(from)
	f.load()
	f.ended(enginesock.Committed, enginesock.Committed)
}

// stands checks that this transfer does not end while another one between the
// same engines begins and ends.
func (f *flow) stands() {
	f.t.Helper()
	f.hush = f.id
	defer func() { f.hush = "" }()
	other := f.flow()
	other.fill()
	other.offer()
	other.store()
	other.claim(0)
	other.committed(0)
}

func prompt(n int) string {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = i
	}
	return kvcache.TokenHash(ids)
}

func length(xs []enginesock.Extent) int64 {
	var n int64
	for _, x := range xs {
		n += x.Length
	}
	return n
}
