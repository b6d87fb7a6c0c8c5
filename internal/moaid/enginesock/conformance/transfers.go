package conformance

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

func equalExtents(a, b []enginesock.Extent) bool { return slices.Equal(a, b) }

func idempotent(t *testing.T, e *env) {
	e.open()
	id := newID()
	first := e.reserve(id, tokens)
	if again := e.reserve(id, tokens); !equalExtents(first, again) {
		t.Errorf("reserved twice: %v, then %v", first, again)
	}
	payload := e.fill(first)
	e.offer(id, tokens)
	e.offer(id, tokens)
	e.stored(id, whole(e.payload(tokens)))
	e.stored(id, whole(e.payload(tokens)))
	e.claim(id, tokens, 0)
	e.claim(id, tokens, 0)
	s := e.ready(id)
	e.same(s, payload, 0)
	if again := e.claim(id, tokens, 0); again.Verdict != enginesock.Ready || !equalExtents(again.Extents[0], s.Extents[0]) {
		t.Errorf("a ready claim repeated: %+v", again)
	}
	e.loaded(id, true)
	e.ended(id, enginesock.Committed, enginesock.Committed)
}

func conflicts(_ *testing.T, e *env) {
	e.open()
	id := newID()
	e.reserve(id, tokens)
	e.refused(e.p, &enginesock.Reserve{ID: id, Tokens: tokens + 1}, enginesock.CodeConflict)
	e.offer(id, tokens)
	e.refused(e.p, &enginesock.Offer{ID: id, Tokens: tokens, TokenHash: prompt(7)}, enginesock.CodeConflict)
	claim := enginesock.Claim{ID: id, Tokens: tokens, TokenHash: prompt(tokens), Source: enginesock.Endpoint{Node: e.pair.Prefill.Node, Engine: e.pair.Prefill.Engine}}
	first := claim
	e.ok(e.d, &first)
	claim.TokenHash = prompt(7)
	e.refused(e.d, &claim, enginesock.CodeConflict)
	e.ok(e.p, &enginesock.Withdraw{ID: id, Reason: "over"})
	e.ended(id, "", enginesock.Withdrawn)
}

func unknownIDs(_ *testing.T, e *env) {
	e.open()
	id := newID()
	e.refused(e.p, &enginesock.Offer{ID: id, Tokens: tokens, TokenHash: prompt(tokens)}, enginesock.CodeUnknownID)
	e.refused(e.p, &enginesock.Withdraw{ID: id}, enginesock.CodeUnknownID)
	e.refused(e.pw, &enginesock.Stored{ID: id, Ranges: []kvcache.Range{{Length: 1}}}, enginesock.CodeUnknownID)
	e.refused(e.d, &enginesock.Release{ID: id}, enginesock.CodeUnknownID)
	e.refused(e.dw, &enginesock.Loaded{ID: id, OK: true}, enginesock.CodeUnknownID)
}

func wholeFlow(_ *testing.T, e *env) {
	e.open()
	id := newID()
	payload := e.fill(e.reserve(id, tokens))
	e.offer(id, tokens)
	e.stored(id, whole(e.payload(tokens)))
	e.claim(id, tokens, 0)
	e.same(e.ready(id), payload, 0)
	e.loaded(id, true)
	e.ended(id, enginesock.Committed, enginesock.Committed)
	e.silent(e.d, id)
}

func storedInPieces(t *testing.T, e *env) {
	e.open()
	id := newID()
	payload := e.fill(e.reserve(id, tokens))
	e.offer(id, tokens)
	e.claim(id, tokens, 0)
	n := e.payload(tokens).Bytes
	cuts := []int64{0, 128, 129, n / 2, n}
	for i := range cuts[1:] {
		if s, err := e.d.Poll(id); err != nil || s.Verdict != enginesock.Pending {
			t.Fatalf("verdict %+v, %v before all is stored", s, err)
		}
		e.stored(id, kvcache.Range{Offset: cuts[i], Length: cuts[i+1] - cuts[i]})
	}
	e.same(e.ready(id), payload, 0)
	e.loaded(id, true)
	e.ended(id, enginesock.Committed, enginesock.Committed)
}

// The claim is there before anything of the prompt is.
func lateOffer(t *testing.T, e *env) {
	e.open()
	id := newID()
	if ok := e.claim(id, tokens, 0); ok.Verdict != enginesock.Pending {
		t.Fatalf("a claim without an offer: %+v", ok)
	}
	payload := e.fill(e.reserve(id, tokens))
	e.stored(id, whole(e.payload(tokens)))
	e.offer(id, tokens)
	e.same(e.ready(id), payload, 0)
	e.loaded(id, true)
	e.ended(id, enginesock.Committed, enginesock.Committed)
}

func claimedTwice(_ *testing.T, e *env) {
	e.open()
	id := newID()
	e.claim(id, tokens, 0)
	e.claim(id, tokens, 0)
	payload := e.fill(e.reserve(id, tokens))
	e.offer(id, tokens)
	e.claim(id, tokens, 0)
	e.stored(id, whole(e.payload(tokens)))
	e.same(e.ready(id), payload, 0)
	e.loaded(id, true)
	e.ended(id, enginesock.Committed, enginesock.Committed)
	e.silent(e.d, id)
}

func fromToken(_ *testing.T, e *env) {
	e.open()
	id := newID()
	payload := e.fill(e.reserve(id, tokens))
	e.offer(id, tokens)
	e.stored(id, whole(e.payload(tokens)))
	e.claim(id, tokens, 13)
	e.same(e.ready(id), payload, 13)
	e.loaded(id, true)
	e.ended(id, enginesock.Committed, enginesock.Committed)
}

func claimExtended(_ *testing.T, e *env) {
	e.open()
	id := newID()
	e.claim(id, tokens, 20)
	payload := e.fill(e.reserve(id, tokens))
	e.offer(id, tokens)
	e.claim(id, tokens, 5)
	e.stored(id, whole(e.payload(tokens)))
	e.same(e.ready(id), payload, 5)
	e.loaded(id, true)
	e.ended(id, enginesock.Committed, enginesock.Committed)
}

func withdraw(t *testing.T, e *env) {
	e.open()
	id := newID()
	e.reserve(id, tokens)
	e.offer(id, tokens)
	e.claim(id, tokens, 0)
	e.ok(e.p, &enginesock.Withdraw{ID: id, Reason: "the client left"})
	if s := e.verdict(id); s.Verdict != enginesock.Failed || s.Code != enginesock.FailWithdrawn {
		t.Errorf("the claimant was told %+v", s)
	}
	e.ended(id, "", enginesock.Withdrawn)
}

func releaseEarly(_ *testing.T, e *env) {
	e.open()
	id := newID()
	e.reserve(id, tokens)
	e.offer(id, tokens)
	e.claim(id, tokens, 0)
	e.ok(e.d, &enginesock.Release{ID: id, Reason: "aborted"})
	e.ended(id, enginesock.Aborted, enginesock.Aborted)
}

// Once the bytes are ready a load may have begun, which a release cannot stop:
// the pages stay until the rank has reported, and only then is the id closed.
func releaseLoading(t *testing.T, e *env) {
	e.open()
	id := newID()
	payload := e.fill(e.reserve(id, tokens))
	e.offer(id, tokens)
	e.stored(id, whole(e.payload(tokens)))
	e.claim(id, tokens, 0)
	s := e.ready(id)
	e.ok(e.d, &enginesock.Release{ID: id, Reason: "aborted"})
	e.same(s, payload, 0)
	if err := e.dw.Loaded(id, true); err != nil && !errors.Is(err, &enginesock.Error{Code: enginesock.CodeUnknownID}) {
		t.Fatalf("loaded after release: %v", err)
	}
	if c := event[*enginesock.Closed](e, e.d, id); c.Outcome != enginesock.Aborted && c.Outcome != enginesock.Committed {
		t.Errorf("closed as %q", c.Outcome)
	}
	event[*enginesock.Released](e, e.p, id)
	e.silent(e.p, id)
	e.silent(e.d, id)
}

func oneReport(t *testing.T, e *env) {
	e.open()
	id := newID()
	e.fill(e.reserve(id, tokens))
	e.offer(id, tokens)
	e.stored(id, whole(e.payload(tokens)))
	e.claim(id, tokens, 0)
	e.ready(id)
	e.loaded(id, true)
	if err := e.dw.Loaded(id, true); !errors.Is(err, enginesock.ErrReported) {
		t.Errorf("a client reported twice: %v", err)
	}
	e.refused(e.dw, &enginesock.Loaded{ID: id, OK: true}, enginesock.CodeDuplicate)
	e.refused(e.dw, &enginesock.Loaded{ID: id, OK: false}, enginesock.CodeDuplicate)
	e.ended(id, enginesock.Committed, enginesock.Committed)
}

func loadFailed(_ *testing.T, e *env) {
	e.open()
	id := newID()
	e.fill(e.reserve(id, tokens))
	e.offer(id, tokens)
	e.stored(id, whole(e.payload(tokens)))
	e.claim(id, tokens, 0)
	e.ready(id)
	e.loaded(id, false)
	e.ended(id, enginesock.Aborted, enginesock.Aborted)
}

func otherPrompt(t *testing.T, e *env) {
	e.open()
	id := newID()
	e.fill(e.reserve(id, tokens))
	e.offer(id, tokens)
	e.stored(id, whole(e.payload(tokens)))
	if _, err := e.d.Claim(enginesock.Claim{ID: id, Tokens: tokens, TokenHash: prompt(tokens + 1),
		Source: enginesock.Endpoint{Node: e.pair.Prefill.Node, Engine: e.pair.Prefill.Engine}}); err != nil {
		t.Fatal(err)
	}
	if s := e.verdict(id); s.Verdict != enginesock.Failed || s.Code != enginesock.FailTokenHash {
		t.Errorf("KV of another prompt: %+v", s)
	}
	e.ended(id, "", enginesock.Aborted)
}

func unknownSource(t *testing.T, e *env) {
	e.open()
	id := newID()
	if _, err := e.d.Claim(enginesock.Claim{ID: id, Tokens: tokens, TokenHash: prompt(tokens), Source: enginesock.Endpoint{Node: "nowhere", Engine: "nobody"}}); err != nil {
		t.Fatal(err)
	}
	if s := e.verdict(id); s.Verdict != enginesock.Failed || (s.Code != enginesock.FailUnknownSource && s.Code != enginesock.FailNotPaired) {
		t.Errorf("a claim from nowhere: %+v", s)
	}
}

func noRoom(t *testing.T, e *env) {
	e.open()
	var ids []string
	long := kvcache.MaxTokens
	for fp := Fingerprint(); ; long /= 2 {
		p, err := fp.PayloadFor(long)
		if err != nil {
			t.Fatal(err)
		}
		if p.Bytes <= staging/3 {
			break
		}
	}
	for range 64 {
		id := newID()
		_, err := e.p.Request(&enginesock.Reserve{ID: id, Tokens: long})
		if err == nil {
			ids = append(ids, id)
			continue
		}
		var refused *enginesock.Error
		if !errors.As(err, &refused) || refused.Code != enginesock.CodeNoRoom || !refused.Retry {
			t.Fatalf("a full arena: %v", err)
		}
		break
	}
	if len(ids) == 0 || len(ids) == 64 {
		t.Fatalf("%d payloads of a third of the arena were reserved", len(ids))
	}
	e.ok(e.p, &enginesock.Withdraw{ID: ids[0], Reason: "make room"})
	event[*enginesock.Room](e, e.p, "")
	e.reserve(newID(), long)
}

func deadlines(t *testing.T, e *env) {
	e.open()
	reserved, offered, claimed := newID(), newID(), newID()
	e.reserve(reserved, tokens)
	e.reserve(offered, tokens)
	e.offer(offered, tokens)
	e.claim(claimed, tokens, 0)
	seen := map[string]enginesock.Outcome{}
	for deadline := time.Now().Add(30 * time.Second); len(seen) < 2; {
		r, err := e.p.Event(time.Until(deadline))
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
	if seen[reserved] != enginesock.Expired || seen[offered] != enginesock.Expired {
		t.Errorf("reserved ended as %q, offered as %q", seen[reserved], seen[offered])
	}
	if s := e.verdict(claimed); s.Verdict != enginesock.Failed || (s.Code != enginesock.FailDeadline && s.Code != enginesock.FailNotOffered) {
		t.Errorf("a claim that nobody offered: %+v", s)
	}
	// Ready, and never loaded.
	id := newID()
	e.fill(e.reserve(id, tokens))
	e.offer(id, tokens)
	e.stored(id, whole(e.payload(tokens)))
	e.claim(id, tokens, 0)
	e.ready(id)
	if r := event[*enginesock.Released](e, e.p, id); r.Outcome == enginesock.Committed {
		t.Errorf("what was never loaded was committed: %+v", r)
	}
}
