package transfer

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// TestUnlikeRanks: whatever the engines' ranks and the order in which workers
// store, every granted byte is sent, once, and not before it can be made.
func TestUnlikeRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SampledFrom([]int{1, 2, 4})
		sources, ranks := sizes.Draw(t, "sources"), sizes.Draw(t, "ranks")
		view := simView(sources, ranks)
		s := NewSender(1, SenderOptions{Tokens: 70, Own: simOwn(sources), MaxChunk: 256, Window: 3, Timeouts: DefaultTimeouts()})
		events := []Event{}
		for rank, own := range simOwn(sources) {
			for off := int64(0); off < own.Bytes(); {
				n := min(rapid.Int64Range(1, 1500).Draw(t, "piece"), own.Bytes()-off)
				events = append(events, Stored{rank, []kvcache.Range{{Offset: off, Length: n}}})
				off += n
			}
		}
		events = append(rapid.Permutation(events).Draw(t, "order"), Tick{})
		begin := rapid.IntRange(0, len(events)-1).Draw(t, "claimed before")
		have, sent := make([]Set, sources), make([]Set, ranks)
		var step func(ev Event)
		step = func(ev Event) {
			if e, ok := ev.(Stored); ok {
				have[e.Rank] = have[e.Rank].Add(e.Ranges[0])
			}
			effects, err := s.Step(2, ev)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range chunks(effects) {
				r := kvcache.Range{Offset: c.Offset, Length: c.Length}
				if !view.Available(have)[c.Rank].Has(r) {
					t.Fatalf("%+v cannot be made yet", c)
				}
				if len(sent[c.Rank].And(Set{r})) > 0 {
					t.Fatalf("%+v was sent before", c)
				}
				sent[c.Rank] = sent[c.Rank].Add(r)
				defer step(ChunkSent{Session: c.Session, Rank: c.Rank, Offset: c.Offset, Length: c.Length})
			}
		}
		step(Offer{Tokens: 70, Hash: "h"})
		for i, ev := range events {
			if i == begin {
				step(PeerClaim{Session: 1, Claimant: "d/decode", Lifetime: 1 << 40, View: view})
				for rank, own := range simOwn(ranks) {
					step(PeerGrant{Session: 1, Rank: rank, Ranges: own, Credit: own.Bytes()})
				}
			}
			step(ev)
		}
		for rank, own := range simOwn(ranks) {
			if missing := own.Sub(sent[rank]); len(missing) > 0 {
				t.Fatalf("%d ranks to %d: %v of rank %d were not sent", sources, ranks, missing, rank)
			}
		}
		if s.State() != Sent {
			t.Errorf("the sender is %s", s.State())
		}
	})
}

// What a rank does not store alone is nothing that it may report.
func TestStoredIsOwn(t *testing.T) {
	s := NewSender(1, SenderOptions{Tokens: 70, Own: simOwn(4), MaxChunk: 256, Window: 3, Timeouts: DefaultTimeouts()})
	same := []kvcache.Range{{Offset: simSplit / 4, Length: simSame}}
	if _, err := s.Step(2, Stored{Rank: 0, Ranges: same}); err != nil {
		t.Error(err)
	}
	for _, rank := range []int{-1, 1, 3, 4} {
		if _, err := s.Step(2, Stored{Rank: rank, Ranges: same}); err == nil {
			t.Errorf("rank %d stored what rank 0 has", rank)
		}
	}
}
