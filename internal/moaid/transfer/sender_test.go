package transfer

import (
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

func offeredSender(t *testing.T, bytes int64) *Sender {
	t.Helper()
	s := NewSender(1, SenderOptions{Tokens: 10, Own: whole(1, bytes), MaxChunk: 100, Window: 2, Timeouts: DefaultTimeouts()})
	for _, ev := range []Event{
		Offer{Tokens: 10, Hash: "h"},
		Stored{Ranges: []kvcache.Range{{Offset: 0, Length: bytes}}},
		PeerClaim{Session: 1, Claimant: "d/decode", Lifetime: 1 << 40, View: alike(1, bytes)},
	} {
		if _, err := s.Step(2, ev); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func chunks(effects []Effect) (out []SendChunk) {
	for _, e := range effects {
		if c, ok := e.(SendChunk); ok {
			out = append(out, c)
		}
	}
	return out
}

// Chunks of a session that was lost fill the window while the next session's
// grant comes. Their ends are what makes room: nothing else would ask again.
func TestLateFailuresOfALostSessionWakeTheSender(t *testing.T) {
	s := offeredSender(t, 400)
	step := func(ev Event) []Effect {
		t.Helper()
		out, err := s.Step(3, ev)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	all := []kvcache.Range{{Offset: 0, Length: 400}}
	old := chunks(step(PeerGrant{Session: 1, Ranges: all, Credit: 400}))
	if len(old) != 2 {
		t.Fatalf("%d chunks with a window of 2", len(old))
	}
	step(PeerDown{Session: 1})
	step(PeerClaim{Session: 2, Claimant: "d/decode", Lifetime: 1 << 40, View: alike(1, 400)})
	if got := chunks(step(PeerGrant{Session: 2, Ranges: all, Credit: 400})); len(got) != 0 {
		t.Fatalf("chunks beyond the window: %v", got)
	}
	var got []SendChunk
	for _, c := range old {
		got = append(got, chunks(step(ChunkSent{Session: c.Session, Offset: c.Offset, Length: c.Length, Failed: true}))...)
	}
	if len(got) != 2 || got[0].Session != 2 || got[0].Offset != 0 {
		t.Errorf("after the old chunks failed: %v", got)
	}
}

func TestRangesAreBounded(t *testing.T) {
	many := make([]kvcache.Range, MaxRanges+1)
	for i := range many {
		many[i] = kvcache.Range{Offset: int64(3 * i), Length: 1}
	}
	size := int64(3 * len(many))
	s := offeredSender(t, size)
	out, err := s.Step(3, PeerGrant{Session: 1, Ranges: many, Credit: 1})
	if len(out) != 1 || err != nil {
		t.Fatalf("%v %v", out, err)
	}
	if _, ok := out[0].(Violation); !ok {
		t.Errorf("%v", out)
	}
	s = NewSender(1, SenderOptions{Tokens: 10, Own: whole(1, size), MaxChunk: 100, Window: 2, Timeouts: DefaultTimeouts()})
	if _, err := s.Step(2, Stored{Ranges: many}); err == nil {
		t.Error("more pieces than the bound were taken")
	}
	if _, err := s.Step(2, Stored{Ranges: many[:MaxRanges]}); err != nil {
		t.Error(err)
	}
}
