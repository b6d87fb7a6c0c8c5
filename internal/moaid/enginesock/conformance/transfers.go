package conformance

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

func idempotent(t *testing.T, e *env) {
	f := e.begun()
	first := f.extents
	if f.reserve(); !reflect.DeepEqual(first, f.extents) {
		t.Errorf("reserved twice: %v, then %v", first, f.extents)
	}
	f.offer()
	f.offer()
	f.store()
	f.store()
	f.claim(0)
	f.claim(0)
	s := f.ready()
	f.same(s, 0)
	if again := f.claim(0); again.Verdict != enginesock.Ready || !reflect.DeepEqual(again.Extents, s.Extents) {
		t.Errorf("a ready claim repeated: %+v", again)
	}
	f.committed(0)
}

func conflicts(_ *testing.T, e *env) {
	e.open()
	f := e.flow()
	f.reserve()
	e.refused(f.p.sched, &enginesock.Reserve{ID: f.id, Tokens: tokens + 1}, enginesock.CodeConflict)
	f.offer()
	e.refused(f.p.sched, &enginesock.Offer{ID: f.id, Tokens: tokens, TokenHash: prompt(7)}, enginesock.CodeConflict)
	f.claim(0)
	other := f.claimRequest(0)
	other.TokenHash = prompt(7)
	e.refused(f.d.sched, &other, enginesock.CodeConflict)
	e.ok(f.p.sched, &enginesock.Withdraw{ID: f.id, Reason: "over"})
	f.ended("", enginesock.Withdrawn)
}

func unknownIDs(_ *testing.T, e *env) {
	e.open()
	id := newID()
	e.refused(e.p.sched, &enginesock.Offer{ID: id, Tokens: tokens, TokenHash: prompt(tokens)}, enginesock.CodeUnknownID)
	e.refused(e.p.sched, &enginesock.Withdraw{ID: id}, enginesock.CodeUnknownID)
	e.refused(e.d.sched, &enginesock.Release{ID: id}, enginesock.CodeUnknownID)
	for rank := range e.format.ranks() {
		e.refused(e.p.workers[rank], &enginesock.Stored{ID: id, Ranges: []kvcache.Range{{Length: 1}}}, enginesock.CodeUnknownID)
		e.refused(e.d.workers[rank], &enginesock.Loaded{ID: id, OK: true}, enginesock.CodeUnknownID)
	}
}

func wholeFlow(_ *testing.T, e *env) {
	f := e.sent()
	f.claim(0)
	f.committed(0)
	e.silent(f.p.sched, f.id)
	e.silent(f.d.sched, f.id)
}

func storedInPieces(t *testing.T, e *env) {
	f := e.begun()
	f.offer()
	f.claim(0)
	for rank, own := range f.own {
		for _, r := range own {
			cuts := []int64{0, 32, 33, r.Length / 2, r.Length}
			for i := range cuts[1:] {
				if s := f.poll(); s.Verdict != enginesock.Pending {
					t.Fatalf("verdict %+v before all is stored", s)
				}
				f.storeRank(rank, kvcache.Range{Offset: r.Offset + cuts[i], Length: cuts[i+1] - cuts[i]})
			}
		}
	}
	f.committed(0)
}

// The claim is there before anything of the prompt is.
func lateOffer(t *testing.T, e *env) {
	e.open()
	f := e.flow()
	if ok := f.claim(0); ok.Verdict != enginesock.Pending {
		t.Fatalf("a claim without an offer: %+v", ok)
	}
	f.fill()
	f.store()
	f.offer()
	f.committed(0)
}

func claimedTwice(_ *testing.T, e *env) {
	e.open()
	f := e.flow()
	f.claim(0)
	f.claim(0)
	f.fill()
	f.offer()
	f.claim(0)
	f.store()
	f.committed(0)
	e.silent(f.d.sched, f.id)
}

func fromToken(_ *testing.T, e *env) {
	f := e.sent()
	f.claim(13)
	f.committed(13)
}

func claimExtended(_ *testing.T, e *env) {
	e.open()
	f := e.flow()
	f.claim(20)
	f.fill()
	f.offer()
	f.claim(5)
	f.store()
	f.committed(5)
}

func withdraw(_ *testing.T, e *env) {
	e.open()
	f := e.flow()
	f.reserve()
	f.offer()
	f.claim(0)
	e.ok(f.p.sched, &enginesock.Withdraw{ID: f.id, Reason: "the client left"})
	f.failed(enginesock.FailWithdrawn)
	f.ended("", enginesock.Withdrawn)
}

func releaseEarly(_ *testing.T, e *env) {
	e.open()
	f := e.flow()
	f.reserve()
	f.offer()
	f.claim(0)
	e.ok(f.d.sched, &enginesock.Release{ID: f.id, Reason: "aborted"})
	f.ended(enginesock.Aborted, enginesock.Aborted)
}

// Once the bytes are ready a load may have begun, which a release cannot stop:
// the pages stay until every rank has reported.
func releaseLoading(t *testing.T, e *env) {
	f := e.arrived()
	s := f.ready()
	e.ok(f.d.sched, &enginesock.Release{ID: f.id, Reason: "aborted"})
	f.same(s, 0)
	for rank, w := range f.d.workers {
		if err := w.Loaded(f.id, true); err != nil && !errors.Is(err, &enginesock.Error{Code: enginesock.CodeUnknownID}) {
			t.Fatalf("loaded of rank %d after release: %v", rank, err)
		}
	}
	if c := event[*enginesock.Closed](e, f.d.sched, f.id); c.Outcome != enginesock.Aborted && c.Outcome != enginesock.Committed {
		t.Errorf("closed as %q", c.Outcome)
	}
	event[*enginesock.Released](e, f.p.sched, f.id)
	e.silent(f.p.sched, f.id)
	e.silent(f.d.sched, f.id)
}

func loadFailed(_ *testing.T, e *env) {
	f := e.arrived()
	for rank := range f.own {
		f.loadRank(rank, false)
	}
	f.ended(enginesock.Aborted, enginesock.Aborted)
}

func otherPrompt(t *testing.T, e *env) {
	f := e.sent()
	c := f.claimRequest(0)
	c.TokenHash = prompt(tokens + 1)
	if _, err := f.d.sched.Claim(c); err != nil {
		t.Fatal(err)
	}
	f.failed(enginesock.FailTokenHash)
	f.ended("", enginesock.Aborted)
}

func unknownSource(t *testing.T, e *env) {
	e.open()
	f := e.flow()
	c := f.claimRequest(0)
	c.Source = enginesock.Endpoint{Node: "nowhere", Engine: "nobody"}
	if _, err := f.d.sched.Claim(c); err != nil {
		t.Fatal(err)
	}
	f.failed(enginesock.FailUnknownSource, enginesock.FailNotPaired)
}

func noRoom(t *testing.T, e *env) {
	e.open()
	long := kvcache.MaxTokens
	for ; ; long /= 2 {
		p, err := e.format.Fingerprint.PayloadFor(long)
		if err != nil {
			t.Fatal(err)
		}
		if p.Bytes <= arenaBytes/3 {
			break
		}
	}
	var held []*flow
	for range 64 {
		f := e.flowOf(long)
		_, err := f.p.sched.Request(f.reserveRequest())
		if err == nil {
			held = append(held, f)
			continue
		}
		var refused *enginesock.Error
		if !errors.As(err, &refused) || refused.Code != enginesock.CodeNoRoom || !refused.Retry {
			t.Fatalf("a full arena: %v", err)
		}
		// What has no pages is not there: it can neither be offered nor withdrawn.
		e.refused(f.p.sched, f.offerRequest(), enginesock.CodeUnknownID)
		e.refused(f.p.sched, &enginesock.Withdraw{ID: f.id}, enginesock.CodeUnknownID)
		break
	}
	if len(held) == 0 || len(held) == 64 {
		t.Fatalf("%d payloads of a third of the arena were reserved", len(held))
	}
	e.ok(e.p.sched, &enginesock.Withdraw{ID: held[0].id, Reason: "make room"})
	event[*enginesock.Room](e, e.p.sched, "")
	e.flowOf(long).reserve()
}

func deadlines(t *testing.T, e *env) {
	e.open()
	reserved, offered, claimed := e.flow(), e.flow(), e.flow()
	reserved.reserve()
	offered.reserve()
	offered.offer()
	claimed.claim(0)
	seen := map[string]enginesock.Outcome{}
	for deadline := time.Now().Add(30 * time.Second); len(seen) < 2; {
		r, err := e.p.sched.Event(time.Until(deadline))
		if err != nil {
			t.Fatalf("after %v: %v", seen, err)
		}
		if m, is := r.(*enginesock.Released); is {
			if m.Reason == "" {
				t.Errorf("an end without a reason: %+v", m)
			}
			seen[m.ID] = m.Outcome
		}
	}
	if seen[reserved.id] != enginesock.Expired || seen[offered.id] != enginesock.Expired {
		t.Errorf("reserved ended as %q, offered as %q", seen[reserved.id], seen[offered.id])
	}
	claimed.failed(enginesock.FailDeadline, enginesock.FailNotOffered)
	// Ready, and loaded by no rank but the first of several.
	f := e.flow()
	f.fill()
	f.offer()
	f.store()
	f.claim(0)
	f.ready()
	if len(f.own) > 1 {
		f.loadRank(0, true)
	}
	if r := event[*enginesock.Released](e, f.p.sched, f.id); r.Outcome == enginesock.Committed {
		t.Errorf("what was not loaded was committed: %+v", r)
	}
}
