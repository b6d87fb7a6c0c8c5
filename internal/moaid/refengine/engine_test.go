package refengine

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// start runs an engine without a connector behind a test server.
func start(t *testing.T, change func(*Config)) (*Engine, *httptest.Server) {
	t.Helper()
	cfg := Default()
	cfg.Name, cfg.Model = "test", "moai/seeded"
	if change != nil {
		change(&cfg)
	}
	e, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := e.Run(ctx); err != nil {
			t.Errorf("the engine ended: %v", err)
		}
	})
	s := httptest.NewServer(e.Handler())
	t.Cleanup(func() {
		s.Close()
		cancel()
		wg.Wait()
	})
	return e, s
}

func post(ctx context.Context, t *testing.T, s *httptest.Server, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

type reply struct {
	Choices []struct {
		Text         string
		Message      struct{ Content string }
		Delta        struct{ Content string }
		TokenIDs     []int    `json:"token_ids"`
		FinishReason *string  `json:"finish_reason"`
		Hashes       []string `json:"logits_sha256"`
	}
	Usage *struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
	}
	Error *struct {
		Message, Type, Param string
		Code                 *string
	}
}

func parse(t *testing.T, body string) reply {
	t.Helper()
	var r reply
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

func TestWrongRequestsAreRefused(t *testing.T) {
	_, s := start(t, nil)
	for name, c := range map[string]struct {
		body   string
		status int
		param  string
	}{
		"no JSON":         {`{`, 400, ""},
		"no prompt":       {`{}`, 400, "prompt"},
		"empty":           {`{"prompt":""}`, 400, "prompt"},
		"several prompts": {`{"prompt":["a","b"]}`, 400, "prompt"},
		"unknown token":   {`{"prompt":[258]}`, 400, "prompt"},
		"other model":     {`{"prompt":"a","model":"gpt"}`, 404, "model"},
		"no tokens":       {`{"prompt":"a","max_tokens":0}`, 400, "max_tokens"},
		"too many":        {`{"prompt":"a","max_tokens":9000}`, 400, "max_tokens"},
		"n":               {`{"prompt":"a","n":2}`, 400, "n"},
		"echo":            {`{"prompt":"a","echo":true}`, 400, "echo"},
		"logprobs":        {`{"prompt":"a","logprobs":3}`, 400, "logprobs"},
		"temperature":     {`{"prompt":"a","temperature":-1}`, 400, "temperature"},
		"stops":           {`{"prompt":"a","stop":["a","b","c","d","e"]}`, 400, "stop"},
		"long prompt":     {`{"max_tokens":5,"prompt":"` + strings.Repeat("a", 9000) + `"}`, 400, "prompt"},
		"integer":         {`{"prompt":"a","max_tokens":"many"}`, 400, "max_tokens"},
		"nested":          {`{"prompt":"a","stream_options":{"include_usage":1}}`, 400, "stream_options"},
		"model's type":    {`{"prompt":"a","model":7}`, 400, "model"},
		"no object":       {`[]`, 400, ""},
		"tools":           {`{"prompt":"a","tools":[{"type":"function"}]}`, 400, "tools"},
		"both ways":       {`{"prompt":"a","kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":true}}`, 400, "kv_transfer_params"},
	} {
		status, body := post(t.Context(), t, s, "/v1/completions", c.body)
		r := parse(t, body)
		if status != c.status || r.Error == nil || r.Error.Param != c.param || r.Error.Message == "" {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	for body, want := range map[string]string{
		`{"prompt":"a","max_tokens":"many"}`:                            "max_tokens must be an integer.",
		`{"prompt":"a","max_tokens":1.5}`:                               "max_tokens must be an integer.",
		`{"prompt":"a","stream":"yes"}`:                                 "stream must be true or false.",
		`{"prompt":"a",`:                                                "The body is no valid JSON: unexpected end of JSON input at byte 14.",
		`{"max_tokens":5,"prompt":"` + strings.Repeat("a", 9000) + `"}`: "The prompt is too long for the model's context: it has 9000 tokens, and the context has 8192 for prompt and answer together. max_tokens is 5.",
	} {
		if _, got := post(t.Context(), t, s, "/v1/completions", body); parse(t, got).Error == nil || parse(t, got).Error.Message != want {
			t.Errorf("%.60s: %s, want %s", body, got, want)
		}
	}
	for path, want := range map[string]int{"/v1/completions": 405, "/v1/models/moai/seeded": 200, "/v1/models/other": 404, "/v1/models": 200} {
		resp, err := s.Client().Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want || (want == 405) != (resp.Header.Get("Allow") == "POST") {
			t.Errorf("GET %s: %d %v", path, resp.StatusCode, resp.Header)
		}
	}
	if status, _ := post(t.Context(), t, s, "/v1/completions", `{"prompt":"`+strings.Repeat("a", 9<<20)+`"}`); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of 9 MiB: %d", status)
	}
	if status, body := post(t.Context(), t, s, "/v1/nothing", `{}`); status != 404 || parse(t, body).Error == nil {
		t.Errorf("an unknown path: %d %s", status, body)
	}
}

// The end of the last request is told at once: until the next report, a router
// would think that somebody waits here.
func TestIdleIsTold(t *testing.T) {
	e, s := start(t, nil)
	for range 2 {
		post(t.Context(), t, s, "/v1/completions", `{"prompt":"a","max_tokens":12,"ignore_eos":true}`)
		select {
		case <-e.replicas[0].sched.Idle():
		case <-time.After(10 * time.Second):
			t.Fatal("nothing was told")
		}
		if st := e.Stats(); st.Waiting+st.Running != 0 {
			t.Errorf("idle, with %+v", st)
		}
	}
}

func TestStreamedEqualsWhole(t *testing.T) {
	_, s := start(t, nil)
	const ask = `{"prompt":"Hello, world","max_tokens":12,"ignore_eos":true,"return_token_ids":true`
	_, body := post(t.Context(), t, s, "/v1/completions", ask+`}`)
	whole := parse(t, body)
	_, body = post(t.Context(), t, s, "/v1/completions", ask+`,"stream":true,"stream_options":{"include_usage":true}}`)
	var text string
	var tokens []int
	var last reply
	done := false
	sc := bufio.NewScanner(strings.NewReader(body))
	for sc.Scan() {
		data, is := strings.CutPrefix(sc.Text(), "data: ")
		switch {
		case !is:
		case data == "[DONE]":
			done = true
		default:
			last = parse(t, data)
			for _, c := range last.Choices {
				text += c.Text
				tokens = append(tokens, c.TokenIDs...)
			}
		}
	}
	if !done || text != whole.Choices[0].Text || !slices.Equal(tokens, whole.Choices[0].TokenIDs) || len(tokens) != 12 {
		t.Errorf("streamed %q %v, whole %+v", text, tokens, whole.Choices[0])
	}
	if last.Usage == nil || last.Usage.PromptTokens != 12 || last.Usage.CompletionTokens != 12 || len(last.Choices) != 0 {
		t.Errorf("the last chunk is %+v", last)
	}
	if *whole.Choices[0].FinishReason != "length" {
		t.Errorf("finish reason %q", *whole.Choices[0].FinishReason)
	}
}

func TestStopStringsCutTheAnswer(t *testing.T) {
	_, s := start(t, func(c *Config) { c.Model = "moai/reciting" })
	text := strings.Repeat("abcdefghij", 120) // recited from 887 back, the next letter is b, c, …
	prompt, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	_, body := post(t.Context(), t, s, "/v1/completions", `{"prompt":`+string(prompt)+`,"max_tokens":30}`)
	all := parse(t, body).Choices[0].Text
	_, body = post(t.Context(), t, s, "/v1/completions", `{"prompt":`+string(prompt)+`,"max_tokens":30,"stop":["`+all[5:8]+`"]}`)
	if c := parse(t, body).Choices[0]; c.Text != all[:5] || *c.FinishReason != "stop" {
		t.Errorf("got %q (%s), want %q of %q", c.Text, *c.FinishReason, all[:5], all)
	}
}

func TestChatAndModels(t *testing.T) {
	_, s := start(t, nil)
	status, body := post(t.Context(), t, s, "/v1/chat/completions", `{"messages":[{"role":"system","content":"x"},{"role":"user","content":[{"type":"text","text":"hi"}]}],"max_completion_tokens":3,"ignore_eos":true}`)
	if r := parse(t, body); status != 200 || r.Usage.CompletionTokens != 3 {
		t.Errorf("chat: %d %s", status, body)
	}
	if status, body := post(t.Context(), t, s, "/v1/chat/completions", `{"messages":[]}`); status != 400 {
		t.Errorf("no messages: %d %s", status, body)
	}
	for path, want := range map[string]string{"/v1/models": "moai/seeded", "/health": "ok", "/metrics": "reference_requests_total 1"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || !strings.Contains(string(b), want) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, b)
		}
	}
}

func TestSamplingIsSeeded(t *testing.T) {
	_, s := start(t, nil)
	ask := func(rest string) []int {
		_, body := post(t.Context(), t, s, "/v1/completions", `{"prompt":"once","max_tokens":16,"ignore_eos":true,"return_token_ids":true`+rest+`}`)
		return parse(t, body).Choices[0].TokenIDs
	}
	a, b, c := ask(`,"temperature":1,"seed":1`), ask(`,"temperature":1,"seed":1`), ask(`,"temperature":1,"seed":2`)
	if !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Errorf("seed 1: %v and %v; seed 2: %v", a, b, c)
	}
}

// Many requests in an engine with too few blocks: some lose theirs, and all have
// the answers that they would have had alone.
func TestPreemptedRequestsHaveTheSameAnswers(t *testing.T) {
	bodies := make([]string, 6)
	for i := range bodies {
		bodies[i] = `{"prompt":"` + strings.Repeat(string(rune('a'+i)), 60+7*i) + `","max_tokens":40,"ignore_eos":true,"return_token_ids":true,"return_logits_hash":true}`
	}
	_, calm := start(t, nil)
	want := make([]reply, len(bodies))
	for i, b := range bodies {
		_, body := post(t.Context(), t, calm, "/v1/completions", b)
		want[i] = parse(t, body)
	}
	e, tight := start(t, func(c *Config) { c.Format.BlockSize, c.Blocks, c.MaxBatchedTokens = 16, 40, 48 })
	var wg sync.WaitGroup
	got := make([]string, len(bodies))
	for i, b := range bodies {
		wg.Go(func() { _, got[i] = post(t.Context(), t, tight, "/v1/completions", b) })
	}
	wg.Wait()
	for i := range got {
		r := parse(t, got[i])
		if len(r.Choices) != 1 || !slices.Equal(r.Choices[0].TokenIDs, want[i].Choices[0].TokenIDs) || !slices.Equal(r.Choices[0].Hashes, want[i].Choices[0].Hashes) {
			t.Errorf("request %d: %s", i, got[i])
		}
	}
	_, text := get(t, tight, "/metrics")
	if strings.Contains(text, "reference_preemptions_total 0\n") {
		t.Error("nothing was preempted: the test proves nothing")
	}
	idle(t, e)
}

func get(t *testing.T, s *httptest.Server, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// idle waits until the engine holds nothing.
func idle(t *testing.T, e *Engine) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		s := e.Stats()
		if s.BlocksFree == s.BlocksTotal && s.Running+s.Waiting == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the engine is not idle: %+v", s)
		}
	}
}

func TestClientsThatLeaveFreeEverything(t *testing.T) {
	e, s := start(t, nil)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 5 {
		wg.Go(func() {
			post(ctx, t, s, "/v1/completions", `{"prompt":"`+strings.Repeat("x", 2000)+`","max_tokens":4000,"ignore_eos":true}`)
		})
	}
	for e.Stats().Running == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	wg.Wait()
	idle(t, e)
}

func TestImpossibleConfigurations(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no name":    func(c *Config) { c.Name = "" },
		"model":      func(c *Config) { c.Model = "gpt" },
		"role":       func(c *Config) { c.Role = "boss" },
		"block size": func(c *Config) { c.Format.BlockSize = 0 },
		"blocks":     func(c *Config) { c.Blocks = 1 },
		"replicas":   func(c *Config) { c.DataParallel = 0 },
		"ranks":      func(c *Config) { c.Format.Tensor = 3 },
		"batch":      func(c *Config) { c.MaxBatchedTokens = 0 },
		"sequences":  func(c *Config) { c.MaxSeqs = 0 },
	} {
		cfg := Default()
		cfg.Name = "test"
		change(&cfg)
		if _, err := New(cfg, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s: an engine was made", name)
		}
	}
}
