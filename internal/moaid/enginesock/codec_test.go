package enginesock

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

const (
	testID   = "0123456789abcdef0123456789abcdef"
	testHash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

func sampleRequests() []Request {
	return []Request{
		&Hello{Engine: "prefill-0", Generation: testID, Session: Worker, Rank: 1, World: 2, DataRank: 1, DataSize: 3, Fingerprint: kvcache.Fingerprint{Model: kvcache.Model{Config: "x"}, Groups: []kvcache.Group{{Kind: kvcache.GroupFull, Layers: []int{0}}}}},
		&Ping{}, &Arena{},
		&Adopt{Arena: "a", Bytes: 4096},
		&Reserve{ID: testID, Tokens: 7, Target: &Endpoint{Node: "n", Engine: "e"}},
		&Offer{ID: testID, Tokens: 7, TokenHash: testHash},
		&Withdraw{ID: testID, Reason: "gone"},
		&Stored{ID: testID, Ranges: []kvcache.Range{{Offset: 0, Length: 5}}},
		&Claim{ID: testID, Tokens: 7, TokenHash: testHash, FromToken: 3, Source: Endpoint{Node: "n", Engine: "e"}},
		&Release{ID: testID, Reason: "r"},
		&Loaded{ID: testID, OK: true},
		&Stats{Waiting: 1, Running: 2, KVBlocksFree: 3, KVBlocksTotal: 4, StepMicrosP50: 5, StepMicrosP99: 6},
	}
}

func sampleReplies() []Reply {
	return []Reply{
		&OK{Seq: 3, LeaseMillis: 10000, MaxWaiting: 4},
		&OK{Seq: 4, ClaimState: ClaimState{Verdict: Ready, FromToken: 2, Ranges: []kvcache.Range{{Length: 9}}, Extents: [][]Extent{{{Offset: 1, Length: 9}}}}},
		&OK{Seq: 4, DeadlineMillis: 60000, RankRanges: [][]kvcache.Range{{{Length: 4}, {Offset: 8, Length: 5}}, {}}, ClaimState: ClaimState{Extents: [][]Extent{{{Offset: 1, Length: 9}}, {}}}},
		&Error{Seq: 5, Code: CodeNoRoom, Message: "full", Retry: true},
		&Room{},
		&Released{ID: testID, Outcome: Committed},
		&VerdictEvent{ID: testID, ClaimState: ClaimState{Verdict: Failed, Code: FailTokenHash, Reason: "other prompt"}},
		&Closed{ID: testID, Outcome: Aborted},
	}
}

// helloJSON is a worker's hello with more fields.
func helloJSON(fields string) string {
	return `{"t":"hello","seq":1,"engine":"e","generation":"` + testID + `","session":"worker",` + fields + `}`
}

func TestHelloOfOneReplica(t *testing.T) {
	for _, fields := range []string{`"rank":0,"world":1`, `"rank":0,"world":1,"data_rank":0,"data_size":0`, `"rank":0,"world":1,"data_rank":0,"data_size":1`} {
		r, err := DecodeRequest([]byte(helloJSON(fields)))
		if h, is := r.(*Hello); err != nil || !is || h.Replicas() != 1 || h.DataRank != 0 {
			t.Errorf("%s: %+v, %v", fields, r, err)
		}
	}
	h := `{"t":"hello","seq":1,"engine":"e","generation":"` + testID + `","session":"scheduler","rank":1,"world":2}`
	if _, err := DecodeRequest([]byte(h)); err == nil {
		t.Error("a scheduler of rank 1 was accepted")
	}
}

func TestRanksWithNothingHaveEmptyLists(t *testing.T) {
	nothing := [][]kvcache.Range{nil, {{Length: 4}}, nil}
	b, err := EncodeReply(&OK{Seq: 1, RankRanges: nothing, ClaimState: ClaimState{Extents: [][]Extent{nil, nil}}})
	if err != nil || strings.Contains(string(b), "null") || !strings.Contains(string(b), `"rank_ranges":[[],[{"offset":0,"length":4}],[]]`) || !strings.Contains(string(b), `"extents":[[],[]]`) {
		t.Errorf("%s, %v", b, err)
	}
	if nothing[0] != nil {
		t.Error("the caller's list was changed")
	}
	b, err = EncodeReply(&VerdictEvent{ID: testID, ClaimState: ClaimState{Verdict: Ready, Extents: [][]Extent{nil}}})
	if err != nil || !strings.Contains(string(b), `"extents":[[]]`) {
		t.Errorf("%s, %v", b, err)
	}
}

func TestRequestsRoundTrip(t *testing.T) {
	for i, r := range sampleRequests() {
		b, err := EncodeRequest(r, int64(i+1))
		if err != nil {
			t.Fatalf("%s: %v", r.Type(), err)
		}
		got, err := DecodeRequest(b)
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%s: got %+v, %v; want %+v", r.Type(), got, err, r)
		}
	}
}

func TestRepliesRoundTrip(t *testing.T) {
	for _, r := range sampleReplies() {
		b, err := EncodeReply(r)
		if err != nil {
			t.Fatalf("%s: %v", r.Type(), err)
		}
		got, err := DecodeReply(b)
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%s: got %+v, %v; want %+v", r.Type(), got, err, r)
		}
	}
}

func TestDecodeRequestRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		code Code // "" means that the session ends
	}{
		"empty":         {"", ""},
		"null":          {"null", ""},
		"array":         {"[]", ""},
		"cut":           {`{"t":"ping"`, ""},
		"no seq":        {`{"t":"ping"}`, ""},
		"negative seq":  {`{"t":"ping","seq":-1}`, ""},
		"long":          {`{"t":"ping","seq":1,"x":"` + strings.Repeat("x", MaxPacket) + `"}`, ""},
		"unknown":       {`{"t":"dance","seq":1}`, CodeUnknownType},
		"wrong kind":    {`{"t":"reserve","seq":1,"id":7}`, CodeBadRequest},
		"short id":      {`{"t":"reserve","seq":1,"id":"ab","tokens":3}`, CodeBadRequest},
		"no tokens":     {`{"t":"reserve","seq":1,"id":"` + testID + `"}`, CodeBadRequest},
		"from beyond":   {`{"t":"claim","seq":1,"id":"` + testID + `","tokens":3,"from_token":4,"token_hash":"` + testHash + `"}`, CodeBadRequest},
		"rank of world": {`{"t":"hello","seq":1,"engine":"e","generation":"` + testID + `","session":"worker","rank":2,"world":2}`, CodeBadRequest},
		"data rank":     {helloJSON(`"rank":0,"world":1,"data_rank":2,"data_size":2`), CodeBadRequest},
		"data rank < 0": {helloJSON(`"rank":0,"world":1,"data_rank":-1,"data_size":2`), CodeBadRequest},
		"no data size":  {helloJSON(`"rank":0,"world":1,"data_rank":1`), CodeBadRequest},
		"data size":     {helloJSON(`"rank":0,"world":1,"data_rank":0,"data_size":65`), CodeBadRequest},
		"data size < 0": {helloJSON(`"rank":0,"world":1,"data_rank":0,"data_size":-1`), CodeBadRequest},
		"big world":     {helloJSON(`"rank":0,"world":65`), CodeBadRequest},
		"fingerprint":   {helloJSON(`"rank":0,"world":1,"fingerprint":{"version":1,"twist":true}`), CodeFingerprint},
		"in a group":    {helloJSON(`"rank":0,"world":1,"fingerprint":{"version":1,"groups":[{"kind":"full","twist":1}]}`), CodeFingerprint},
		"range wraps":   {`{"t":"stored","seq":1,"id":"` + testID + `","ranges":[{"offset":9223372036854775807,"length":1}]}`, CodeBadRequest},
	} {
		_, err := DecodeRequest([]byte(c.in))
		var refused *Refused
		switch {
		case c.code == "" && !errors.Is(err, ErrMalformed):
			t.Errorf("%s: got %v, want the session's end", name, err)
		case c.code != "" && (!errors.As(err, &refused) || refused.Code != c.code || refused.Seq != 1):
			t.Errorf("%s: got %v, want an answer with %s", name, err, c.code)
		}
	}
}

func TestUnknownFieldsAndRepliesAreIgnored(t *testing.T) {
	if _, err := DecodeRequest([]byte(`{"t":"ping","seq":1,"later":{"x":[1]}}`)); err != nil {
		t.Errorf("an unknown field was refused: %v", err)
	}
	if r, err := DecodeReply([]byte(`{"t":"later"}`)); r != nil || err != nil {
		t.Errorf("an unknown reply gave %v, %v", r, err)
	}
}

func TestEncodeRefusesLongPackets(t *testing.T) {
	_, err := EncodeRequest(&Withdraw{ID: testID, Reason: strings.Repeat("x", MaxPacket)}, 1)
	if !errors.Is(err, ErrMalformed) {
		t.Errorf("got %v", err)
	}
}

func FuzzDecodeRequest(f *testing.F) {
	for i, r := range sampleRequests() {
		b, err := EncodeRequest(r, int64(i+1))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRequest(b)
		if err != nil {
			var refused *Refused
			if !errors.Is(err, ErrMalformed) && !errors.As(err, &refused) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if h, is := r.(*Hello); is && (h.Rank < 0 || h.Rank >= h.World || h.World > MaxWorld || h.DataRank < 0 || h.DataRank >= h.Replicas() || h.Replicas() > MaxReplicas) {
			t.Fatalf("a rank that cannot be was accepted: %+v", h)
		}
		again, err := EncodeRequest(r, r.SeqNumber())
		if err != nil {
			return // escaping can make a packet longer than the limit
		}
		got, err := DecodeRequest(again)
		if err != nil {
			t.Fatalf("does not decode again: %v", err)
		}
		if got.Type() != r.Type() || got.SeqNumber() != r.SeqNumber() {
			t.Fatalf("changed from %+v to %+v", r, got)
		}
		if h, is := r.(*Hello); is && (got.(*Hello).DataRank != h.DataRank || got.(*Hello).DataSize != h.DataSize) {
			t.Fatalf("another replica: %+v, then %+v", h, got)
		}
	})
}

func FuzzDecodeReply(f *testing.F) {
	for _, r := range sampleReplies() {
		b, err := EncodeReply(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"t":"ok","seq":1,"rank_ranges":[null,[]],"extents":[[],null]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeReply(b)
		if err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatalf("error of another kind: %v", err)
		}
		if err != nil || r == nil {
			return
		}
		again, err := EncodeReply(r)
		if err != nil {
			return // escaping can make a packet longer than the limit
		}
		got, err := DecodeReply(again)
		if err != nil || got.Type() != r.Type() {
			t.Fatalf("%s does not decode again: %+v, %v", again, got, err)
		}
		if ok, is := r.(*OK); is && (len(got.(*OK).RankRanges) != len(ok.RankRanges) || len(got.(*OK).Extents) != len(ok.Extents)) {
			t.Fatalf("ranks changed: %+v, then %+v", ok, got)
		}
	})
}
