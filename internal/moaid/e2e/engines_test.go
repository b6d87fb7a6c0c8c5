package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/e2e/rig"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
)

const staging = 64 << 20

// engine is a running reference engine and its HTTP client.
type engine struct {
	*refengine.Engine
	t    testing.TB
	hc   *http.Client
	fp   kvcache.Fingerprint
	node string
	name string
}

func testLog() *slog.Logger {
	if os.Getenv("MOAI_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

// startEngine serves an engine on the node's socket; node may be nil for one
// without a connector.
func startEngine(t testing.TB, node *rig.Node, cfg refengine.Config) *engine {
	t.Helper()
	e := &engine{t: t, name: cfg.Name}
	if node != nil {
		e.node = node.Name
		cfg.DaemonSocket, cfg.HTTPSocket = node.EngineSocket(), node.HTTPSocket(cfg.Name) // the node's name comes from the daemon
	} else {
		dir, err := os.MkdirTemp("", "moai-e2e-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		cfg.HTTPSocket = dir + "/http"
	}
	var err error
	if e.Engine, err = refengine.New(cfg, testLog().With("engine", cfg.Name)); err != nil {
		t.Fatal(err)
	}
	if e.fp, err = cfg.Fingerprint(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", cfg.HTTPSocket)
	if err != nil {
		t.Fatal(err)
	}
	rig.NewGroup(t).Go(func(ctx context.Context) {
		if err := e.Serve(ctx, l, 0); err != nil {
			t.Errorf("engine %s: %v", cfg.Name, err)
		}
	})
	e.hc = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", cfg.HTTPSocket)
	}}}
	t.Cleanup(e.hc.CloseIdleConnections)
	rig.Eventually(t, 30*time.Second, e.Health)
	return e
}

// pair is a prefill engine and a decode engine on linked nodes.
type pair struct {
	*rig.Pair
	p, d *engine
}

func config(name, model string, seed uint64) refengine.Config {
	c := refengine.Default()
	c.Name, c.Model, c.Seed, c.ClaimSeed = name, model, seed, seed
	return c
}

func startPair(t testing.TB, o rig.Options, p, d refengine.Config) *pair {
	t.Helper()
	o.Log = testLog()
	nodes := rig.New(t, o)
	pfp, err := p.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	dfp, err := d.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	nodes.Engines(t, p.Name, d.Name, pfp, dfp, staging)
	return &pair{nodes, startEngine(t, nodes.A, p), startEngine(t, nodes.B, d)}
}

// answer is what the tests look at in a response.
type answer struct {
	Tokens   []int
	Hashes   []string
	Cached   int
	Transfer *sched.TransferParams
	Text     string
}

func (e *engine) complete(ctx context.Context, prompt []int, n int, tr *sched.TransferParams) (answer, error) {
	body, err := json.Marshal(map[string]any{"prompt": prompt, "max_tokens": n, "ignore_eos": true, "return_token_ids": true, "return_logits_hash": true, "kv_transfer_params": tr})
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine/v1/completions", bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	resp, err := e.hc.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("%s: %s", resp.Status, b)
	}
	var r struct {
		Choices []struct {
			TokenIDs []int    `json:"token_ids"`
			Hashes   []string `json:"logits_sha256"`
			Text     string   `json:"text"`
		} `json:"choices"`
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
		Transfer *sched.TransferParams `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal(b, &r); err != nil || len(r.Choices) != 1 {
		return answer{}, fmt.Errorf("answer %s: %w", b, err)
	}
	return answer{r.Choices[0].TokenIDs, r.Choices[0].Hashes, r.Usage.Details.Cached, r.Transfer, r.Choices[0].Text}, nil
}

// split prefills on P and decodes on D, as a gateway does.
func (p *pair) split(ctx context.Context, prompt []int, n int) (answer, *sched.TransferParams, error) {
	first, err := p.p.complete(ctx, prompt, 1, &sched.TransferParams{DoRemoteDecode: true, TargetNode: p.d.node, TargetEngine: p.d.name})
	if err != nil {
		return answer{}, nil, fmt.Errorf("prefill: %w", err)
	}
	if first.Transfer == nil {
		return answer{}, nil, fmt.Errorf("prefill gave no kv_transfer_params")
	}
	got, err := p.d.complete(ctx, prompt, n, first.Transfer)
	if err != nil {
		return answer{}, nil, fmt.Errorf("decode: %w", err)
	}
	return got, first.Transfer, nil
}

// prompts gives n prompts of 1 to longest tokens, no two of the same length, their
// lengths spread evenly on a logarithmic scale. Only one has a single token:
// decode computes that again whatever it received.
func prompts(n, longest int, seed uint64) [][]int {
	out := make([][]int, n)
	size := 0
	for i := range out {
		size = max(size+1, int(math.Round(math.Pow(float64(longest), float64(i)/float64(n-1)))))
		out[i] = make([]int, size)
		for j := range out[i] {
			seed = seed*6364136223846793005 + 1442695040888963407
			out[i][j] = int(seed >> 33 & 0xff)
		}
	}
	return out
}
