package canary

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// good is a request whose KV crossed.
func good() Evidence {
	answer := []string{"t", "o", "k"}
	return Evidence{
		Alone: answer, Pair: answer, PromptTokens: 1200,
		Verdict: "ready", Computed: 1, Requests: 1,
		State: "committed", BytesMoved: 4096, BytesExpected: 4096,
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, says string
		want       Outcome
		change     func(*Evidence)
	}{
		{"KV crossed", "", Passed, func(*Evidence) {}},
		{"everything came from the cache", "", Passed, func(e *Evidence) { e.Computed = 0 }},
		{"other answer", `at token 2 of 3: "x" instead of "o k"`, Wrong, func(e *Evidence) { e.Pair = []string{"t", "x"} }},
		{"shorter answer", "the end", Wrong, func(e *Evidence) { e.Pair = []string{"t", "o"} }},
		{"other answer, KV failed", "peer_gone", Wrong, func(e *Evidence) { e.Pair, e.Verdict, e.Code = []string{"x"}, "failed", "peer_gone" }},
		{"nothing to compare", "gave no tokens", NotYet, func(e *Evidence) { e.Alone, e.Pair = nil, nil }},
		{"no-op: ready without bytes", "0 bytes of KV arrived", Wrong, func(e *Evidence) { e.BytesMoved = 0 }},
		{"no-op: the daemon knows no transfer", "no record", Wrong, func(e *Evidence) { e.State, e.BytesMoved = "", 0 }},
		{"no-op: nothing was claimed", "did not claim", Wrong, func(e *Evidence) { e.Verdict = "" }},
		{"recomputed although KV arrived", "computed 1200 tokens", Wrong, func(e *Evidence) { e.Computed = 1200 }},
		{"one token too many", "computed 2 tokens", Wrong, func(e *Evidence) { e.Computed = 2 }},
		{"never reached decode", "did not count", Wrong, func(e *Evidence) { e.Computed, e.Requests = 0, 0 }},
		{"recomputed: transient failure", "did not arrive (deadline)", NotYet, func(e *Evidence) { e.Verdict, e.Code, e.Computed = "failed", "deadline", 1200 }},
		{"recomputed: refused", "refused (not_paired)", Wrong, func(e *Evidence) { e.Verdict, e.Code, e.Computed = "failed", "not_paired", 1200 }},
		{"recomputed: unknown reason", "refused (later_code)", Wrong, func(e *Evidence) { e.Verdict, e.Code = "failed", "later_code" }},
		{"recomputed: values that do not fit", "allow_lossy", NotYet, func(e *Evidence) { e.Verdict, e.Code, e.Computed = "failed", "inexact", 1200 }},
		{"values changed without leave", "changed 3 values", Wrong, func(e *Evidence) { e.Clipped, e.Rounded = 1, 2 }},
		{"lossy, all the same", "", Passed, func(e *Evidence) { e.Lossy = true }},
		{"lossy, other answer", "", Passed, func(e *Evidence) { e.Lossy, e.Pair = true, []string{"x"} }},
		{"lossy, recomputed", "computed 1200 tokens", Wrong, func(e *Evidence) { e.Lossy, e.Computed = true, 1200 }},
		{"lossy, without bytes", "0 bytes of KV arrived", Wrong, func(e *Evidence) { e.Lossy, e.BytesMoved = true, 0 }},
		{"lossy, no answer", "gave no tokens", NotYet, func(e *Evidence) { e.Lossy, e.Pair = true, nil }},
		{"others on the engine", "2 requests at the same time", NotYet, func(e *Evidence) { e.Requests, e.Computed = 2, 900 }},
		{"others on the engine that computed nothing", "", Passed, func(e *Evidence) { e.Requests = 2 }},
		{"no metrics", "do not tell", NotYet, func(e *Evidence) { e.Computed = -1 }},
		{"not committed yet", "has not said", NotYet, func(e *Evidence) { e.State = "ready" }},
		{"had a prefix", "first 64 tokens", NotYet, func(e *Evidence) { e.FromToken, e.BytesMoved = 64, 100 }},
		{"no geometry", "no bytes to expect", NotYet, func(e *Evidence) { e.BytesExpected = 0 }},
	} {
		e := good()
		c.change(&e)
		v := Decide(e)
		if v.Outcome != c.want || c.want == Passed && len(v.Reasons) > 0 || !strings.Contains(strings.Join(v.Reasons, " "), c.says) {
			t.Errorf("%s: got %v %q, want %v with %q", c.name, v.Outcome, v.Reasons, c.want, c.says)
		}
	}
}

// Whatever is seen, a request passes only if the answer is right, the bytes are
// those of the geometry and decode computed at most one token.
func TestPassedNeedsAllControls(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), 0, 3)
		e := Evidence{
			Alone: tokens.Draw(t, "alone"), Pair: tokens.Draw(t, "pair"), PromptTokens: 100,
			Verdict:       rapid.SampledFrom([]string{"ready", "failed", ""}).Draw(t, "verdict"),
			Code:          rapid.SampledFrom([]string{"", "deadline", "corrupt", "inexact"}).Draw(t, "code"),
			Lossy:         rapid.Bool().Draw(t, "lossy"),
			Rounded:       rapid.Int64Range(0, 1).Draw(t, "rounded"),
			Computed:      rapid.Int64Range(-1, 3).Draw(t, "computed"),
			Requests:      rapid.Int64Range(-1, 3).Draw(t, "requests"),
			State:         rapid.SampledFrom([]string{"", "ready", "committed"}).Draw(t, "state"),
			BytesMoved:    rapid.Int64Range(0, 2).Draw(t, "moved"),
			BytesExpected: rapid.Int64Range(0, 2).Draw(t, "expected"),
		}
		v := Decide(e)
		equal := strings.Join(e.Alone, ",") == strings.Join(e.Pair, ",") && e.Rounded == 0
		proved := len(e.Alone) > 0 && len(e.Pair) > 0 && (equal || e.Lossy) && e.Verdict == "ready" &&
			e.State == "committed" && e.BytesMoved == e.BytesExpected && e.BytesExpected > 0 &&
			e.Computed >= 0 && e.Computed <= 1 && e.Requests >= 1
		if (v.Outcome == Passed) != proved {
			t.Fatalf("%+v: got %v %q", e, v.Outcome, v.Reasons)
		}
		if (v.Outcome == Passed) != (len(v.Reasons) == 0) {
			t.Fatalf("%v with reasons %q", v.Outcome, v.Reasons)
		}
		// How far the answers of a lossy pair agree is always said.
		if (len(v.Notes) > 0) != (v.Outcome == Passed && e.Lossy) {
			t.Fatalf("%v, lossy %v, with notes %q", v.Outcome, e.Lossy, v.Notes)
		}
	})
}

func TestAgreementIsReported(t *testing.T) {
	t.Parallel()
	e := good()
	e.Lossy, e.Clipped, e.Rounded, e.Conversion = true, 3, 40, "storage.dtype bf16 → fp8_e4m3fn (lossy)"
	e.Pair = []string{"t", "x"}
	notes := strings.Join(Decide(e).Notes, " ")
	for _, want := range []string{"first token is the decode engine's own", "first 1 of 3 tokens", "3 values were clipped and 40 rounded (storage.dtype bf16 → fp8_e4m3fn (lossy))"} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q does not say %q", notes, want)
		}
	}
	e.Pair = []string{"x"}
	if notes := strings.Join(Decide(e).Notes, " "); !strings.Contains(notes, `first token is x instead of t`) {
		t.Errorf("got %q", notes)
	}
}
