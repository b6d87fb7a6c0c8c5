package canary

import (
	"errors"
	"slices"
	"testing"
)

func TestPrompt(t *testing.T) {
	t.Parallel()
	a, b := Prompt(1, 1200), Prompt(2, 1200)
	if len(a) != 1200 || a == b || a != Prompt(1, 1200) {
		t.Errorf("got %d bytes; same for another seed: %v", len(a), a == b)
	}
}

func TestParseAnswer(t *testing.T) {
	t.Parallel()
	a, err := ParseAnswer([]byte(`{"choices":[{"text":"ab","token_ids":[97,98]}],"usage":{"prompt_tokens":7},"kv_transfer_params":{"transfer_id":"x"}}`))
	if err != nil || !slices.Equal(a.Tokens, []string{"97", "98"}) || a.PromptTokens != 7 || a.KVTransferParams["transfer_id"] != "x" {
		t.Errorf("got %+v, %v", a, err)
	}
	a, err = ParseAnswer([]byte(`{"choices":[{"text":"ab"}]}`))
	if err != nil || !slices.Equal(a.Tokens, []string{"ab"}) {
		t.Errorf("got %+v, %v", a, err)
	}
	for _, bad := range []string{"", "[]", `{"choices":[]}`, "<html>"} {
		if a, err := ParseAnswer([]byte(bad)); err == nil {
			t.Errorf("%q is read as %+v", bad, a)
		}
	}
}

func TestSum(t *testing.T) {
	t.Parallel()
	text := []byte("# HELP x_total y\n# TYPE x_total counter\nx_total 3\nx_total{model=\"a } b\"} 4 1700000000\nx_total_other 100\n")
	if n, err := Sum(text, "x_total"); err != nil || n != 7 {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := Sum(text, "x"); !errors.Is(err, ErrNoMetric) {
		t.Errorf("got %v", err)
	}
	for _, bad := range []string{"x NaN", "x -1", "x", "x{a 1", "x y"} {
		if n, err := Sum([]byte(bad+"\n"), "x"); err == nil {
			t.Errorf("%q is read as %d", bad, n)
		}
	}
}

func TestParseVerdict(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][2]string{
		"ready":                 {"ready", ""},
		"failed; code=deadline": {"failed", "deadline"},
		"":                      {"", ""},
	} {
		if v, c := ParseVerdict(in); v != want[0] || c != want[1] {
			t.Errorf("%q: got %q, %q", in, v, c)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("x_total{a=\"b\"} 3\n"), "failed; code=deadline")
	f.Add([]byte(`{"choices":[{"text":"ab"}]}`), "ready")
	f.Fuzz(func(t *testing.T, b []byte, header string) {
		if n, err := Sum(b, "x_total"); err == nil && n < 0 {
			t.Fatalf("a count of %d", n)
		}
		if a, err := ParseAnswer(b); err == nil && slices.Contains(a.Tokens, "") && len(a.Tokens) == 1 {
			t.Fatalf("an answer of one empty token: %+v", a)
		}
		ParseVerdict(header)
	})
}
