package refengine

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/worker"
)

const askHashes = `","max_tokens":12,"ignore_eos":true,"return_token_ids":true,"return_logits_hash":true}`

// Ranks of their own, in processes, give the same logits to the last bit.
func TestRanksDoNotChangeABit(t *testing.T) {
	bodies := make([]string, 4)
	for i := range bodies {
		bodies[i] = `{"prompt":"` + strings.Repeat(string(rune('a'+i))+"b", 20+130*i) + askHashes
	}
	want := make([]reply, len(bodies))
	_, alone := start(t, nil)
	for i, b := range bodies {
		_, body := post(t.Context(), t, alone, "/v1/completions", b)
		want[i] = parse(t, body)
	}
	for _, tensor := range []int{2, 4} {
		_, s := start(t, func(c *Config) { c.Format.Tensor = tensor })
		var wg sync.WaitGroup
		for i, b := range bodies {
			wg.Go(func() {
				_, body := post(t.Context(), t, s, "/v1/completions", b)
				got := parse(t, body)
				if len(got.Choices) != 1 || !slices.Equal(got.Choices[0].TokenIDs, want[i].Choices[0].TokenIDs) || !slices.Equal(got.Choices[0].Hashes, want[i].Choices[0].Hashes) {
					t.Errorf("%d ranks, prompt %d: %s", tensor, i, body)
				}
			})
		}
		wg.Wait()
	}
}

func postTo(t *testing.T, s *httptest.Server, replica, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-data-parallel-rank", replica)
	rec, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rec.Body.Close() }()
	var b strings.Builder
	if err := rec.Write(&b); err != nil {
		t.Fatal(err)
	}
	return rec.StatusCode, b.String()
}

// A request goes to the replica it names, one that names none to the one with the
// fewest.
func TestReplicas(t *testing.T) {
	e, s := start(t, func(c *Config) { c.DataParallel = 2 })
	for _, wrong := range []string{"2", "-1", "x", "0.5", ""} {
		if status, body := postTo(t, s, wrong, `{"prompt":"a"}`); status != 400 || !strings.Contains(body, "X-Data-Parallel-Rank") {
			t.Errorf("replica %q: %d %s", wrong, status, body)
		}
	}
	const long = `{"prompt":"abc","max_tokens":3000,"ignore_eos":true}`
	held := func(n int, at func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { post(ctx, t, s, "/v1/completions", long) })
		for e.replicas[n].sched.Stats().Running == 0 {
			time.Sleep(time.Millisecond)
		}
		at()
		cancel()
		wg.Wait()
		for e.replicas[n].sched.Stats().Running > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	held(0, func() { // the first goes to the first
		held(1, func() {
			if status, body := postTo(t, s, "1", `{"prompt":"a","max_tokens":2}`); status != 200 {
				t.Errorf("%d %s", status, body)
			}
		})
	})
	_, text := get(t, s, "/metrics")
	for _, want := range []string{"reference_requests_total 3\n", `reference_kv_blocks_free{replica="1"} 2048`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// An engine one of whose ranks dies ends, with that rank's name, and says so to
// those who wait.
func TestEngineEndsWithItsRanks(t *testing.T) {
	cfg := Default()
	cfg.Name, cfg.Model, cfg.Format.Tensor = "test", "moai/seeded", 2
	for _, request := range []string{"", `{"prompt":"abc","max_tokens":8000,"ignore_eos":true}`,
		`{"prompt":"abc","max_tokens":8000,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true},"return_token_ids":true}`} {
		idle := request == ""
		e, err := New(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		s := httptest.NewServer(e.Handler())
		t.Cleanup(s.Close)
		generated := func() float64 {
			_, text := get(t, s, "/metrics")
			_, rest, _ := strings.Cut(text, "generation_tokens_total counter\nreference_generation_tokens_total ")
			value, _, _ := strings.Cut(rest, "\n")
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		answered := make(chan string, 1)
		if !idle {
			go func() {
				_, body := post(t.Context(), t, s, "/v1/completions", request)
				answered <- body
			}()
			for e.Stats().Running == 0 || generated() < 50 {
				time.Sleep(time.Millisecond)
			}
		}
		pid := e.replicas[0].team.(*worker.Processes).PIDs()[1]
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "replica 0: rank 1 (process") || !strings.Contains(err.Error(), "killed") {
				t.Errorf("the engine ended with %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the engine goes on")
		}
		if !idle {
			// What failed is in the log. Nothing follows on a stream's error.
			got := <-answered
			last := got[strings.LastIndex(strings.TrimSpace(got), "\n")+1:]
			var body struct{ Error map[string]any }
			if err := json.Unmarshal([]byte(strings.TrimPrefix(last, "data: ")), &body); err != nil {
				t.Fatalf("the request was answered %s", got)
			}
			message, _ := body.Error["message"].(string)
			if !strings.HasPrefix(message, "the engine ") || !strings.HasSuffix(message, "send the request again") || len(message) > 100 || body.Error["code"] != "engine_failed" || body.Error["type"] != "server_error" || len(body.Error) != 4 {
				t.Errorf("the request was answered %s", last)
			}
			if strings.Contains(got, "[DONE]") || strings.Contains(got, `"usage"`) {
				t.Errorf("the request was answered %s", got)
			}
		}
		for _, pid := range e.replicas[0].team.(*worker.Processes).PIDs() {
			if err := syscall.Kill(pid, 0); err == nil {
				t.Errorf("process %d is left", pid)
			}
		}
	}
}

// What a rank cannot build is the engine's error, and nothing is left.
func TestRanksThatCannotBeBuilt(t *testing.T) {
	p := worker.NewProcesses(worker.Spec{Model: "gpt"}, func() {}, nil, nil)
	if err := p.Start(t.Context()); err == nil {
		t.Error("no ranks were started")
	}
	cfg := Default()
	fp, err := cfg.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	fp.Ranks.Tensor = 2
	p = worker.NewProcesses(worker.Spec{Model: "gpt", Fingerprint: fp}, func() {}, nil, os.Stderr)
	if err := p.Start(t.Context()); err == nil || !strings.Contains(err.Error(), `"gpt"`) {
		t.Errorf("started: %v", err)
	}
	for _, pid := range p.PIDs() {
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("process %d is left", pid)
		}
	}
}
