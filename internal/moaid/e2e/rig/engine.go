package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
)

// Staging is the staging memory of an engine, in bytes.
const Staging = 64 << 20

// Engine is a running reference engine and its HTTP client.
type Engine struct {
	*refengine.Engine
	Fingerprint kvcache.Fingerprint
	Node        string // "" for one without a connector
	Name        string
	WithLogits  bool // answers tell all logits, not only their hashes

	t  testing.TB
	hc *http.Client
}

// Log is where tests log: nowhere, unless MOAI_TEST_LOG is set.
func Log() *slog.Logger {
	if os.Getenv("MOAI_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

// Config is the configuration of an engine with weights of a seed, in the default
// format. Where it or its pair has several ranks or replicas, the test's main
// function calls [worker.ServeIfAsked].
func Config(name, model string, seed uint64) refengine.Config {
	c := refengine.Default()
	c.Name, c.Model, c.Seed, c.ClaimSeed = name, model, seed, seed
	return c
}

// StartEngine serves an engine on the node's socket until the test's end; it
// returns when the engine is healthy. A node, on which the engine is registered, may
// be nil for an engine without a connector.
func StartEngine(t testing.TB, node *Node, cfg refengine.Config) *Engine {
	t.Helper()
	e := &Engine{t: t, Name: cfg.Name}
	if node != nil {
		e.Node = node.Name
		cfg.DaemonSocket, cfg.HTTPSocket = node.EngineSocket(), node.HTTPSocket(cfg.Name) // the node's name comes from the daemon
	} else {
		dir, err := os.MkdirTemp("", "moai-e2e-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		cfg.HTTPSocket = dir + "/http"
	}
	if os.Getenv("MOAI_TEST_LOG") != "" {
		cfg.Stderr = os.Stderr
	}
	var err error
	if e.Engine, err = refengine.New(cfg, Log().With("engine", cfg.Name)); err != nil {
		t.Fatal(err)
	}
	if e.Fingerprint, err = cfg.Fingerprint(); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", cfg.HTTPSocket)
	if err != nil {
		t.Fatal(err)
	}
	NewGroup(t).Go(func(ctx context.Context) {
		if err := e.Serve(ctx, l, 0); err != nil {
			t.Errorf("engine %s: %v", cfg.Name, err)
		}
	})
	e.hc = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", cfg.HTTPSocket)
	}}}
	t.Cleanup(e.hc.CloseIdleConnections)
	Eventually(t, wait, e.Health)
	return e
}

// Answer is what tests look at in a response.
type Answer struct {
	Tokens   []int
	Hashes   []string // of the logits, a token
	Cached   int      // prompt tokens that were not computed
	Transfer *sched.TransferParams
	Text     string
	Logits   [][]float32 // a token, of an engine WithLogits
}

// Complete asks for n tokens, for any replica of the engine to answer.
func (e *Engine) Complete(ctx context.Context, prompt []int, n int, tr *sched.TransferParams) (Answer, error) {
	return e.CompleteAt(ctx, nil, prompt, n, tr)
}

// CompleteAt asks a data-parallel replica; nil means any.
func (e *Engine) CompleteAt(ctx context.Context, replica *int, prompt []int, n int, tr *sched.TransferParams) (Answer, error) {
	body, err := json.Marshal(map[string]any{"prompt": prompt, "max_tokens": n, "ignore_eos": true, "return_token_ids": true, "return_logits_hash": true, "return_logits": e.WithLogits, "kv_transfer_params": tr})
	if err != nil {
		return Answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine/v1/completions", bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	if replica != nil {
		req.Header.Set("X-data-parallel-rank", strconv.Itoa(*replica))
	}
	resp, err := e.hc.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return Answer{}, fmt.Errorf("%s: %s", resp.Status, b)
	}
	var r struct {
		Choices []struct {
			TokenIDs []int       `json:"token_ids"`
			Hashes   []string    `json:"logits_sha256"`
			Logits   [][]float32 `json:"logits"`
			Text     string      `json:"text"`
		} `json:"choices"`
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
		Transfer *sched.TransferParams `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal(b, &r); err != nil || len(r.Choices) != 1 {
		return Answer{}, fmt.Errorf("answer %s: %w", b, err)
	}
	return Answer{r.Choices[0].TokenIDs, r.Choices[0].Hashes, r.Usage.Details.Cached, r.Transfer, r.Choices[0].Text, r.Choices[0].Logits}, nil
}

// Metric reads the sum of a series from the engine's /metrics.
func (e *Engine) Metric(ctx context.Context, name string) float64 {
	e.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/metrics", nil)
	if err != nil {
		e.t.Fatal(err)
	}
	resp, err := e.hc.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var b strings.Builder
	if err := resp.Write(&b); err != nil {
		e.t.Fatal(err)
	}
	var sum float64
	for line := range strings.SplitSeq(b.String(), "\n") {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			e.t.Fatalf("%s: %v", line, err)
		}
		sum += v
	}
	return sum
}

// Payload is how many KV bytes geometry gives for a prompt that is sent to this
// engine: over all ranks, each head once.
func (e *Engine) Payload(tokens int) int64 {
	e.t.Helper()
	pl, err := e.Fingerprint.PayloadFor(tokens)
	if err != nil {
		e.t.Fatal(err)
	}
	return e.Fingerprint.WireBytes(pl, 0)
}
