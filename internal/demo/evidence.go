package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/demo/proof"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
)

// computedMetric counts the prompt tokens that an engine computed itself.
const computedMetric = "reference_prompt_tokens_computed_total"

// witness sees what happens on the decode host while a completion runs.
type witness struct {
	mgmt   *client.Client
	engine string
	before int
}

func newWitness(ctx context.Context, mgmt *client.Client, engine string) (*witness, error) {
	n, err := promptTokensComputed(ctx, mgmt, engine)
	return &witness{mgmt: mgmt, engine: engine, before: n}, err
}

// evidence gathers what the decode host knows of the transfer with this id;
// alone is what the engine said alone, without a transfer.
func (w *witness) evidence(ctx context.Context, c Completion, alone, answer string) (proof.Evidence, *api.Transfer, error) {
	after, err := promptTokensComputed(ctx, w.mgmt, w.engine)
	if err != nil {
		return proof.Evidence{}, nil, err
	}
	status, err := w.mgmt.GetEngine(ctx, w.engine, 0)
	if err != nil {
		return proof.Evidence{}, nil, err
	}
	payload, err := status.Fingerprint.PayloadFor(c.PromptTokens)
	if err != nil {
		return proof.Evidence{}, nil, fmt.Errorf("the router counted %d prompt tokens: %w", c.PromptTokens, err)
	}
	e := proof.Evidence{
		Text: c.Text, AloneText: alone, PromptTokens: c.PromptTokens, DecodeComputed: after - w.before, Route: c.Route,
		BytesExpected: status.Fingerprint.WireBytes(payload, 0), ExpectedRecitationPart: answer,
		FellBackToDecodeOnly: !strings.HasPrefix(c.Route, "pd"),
	}
	t, err := endedTransfer(ctx, w.mgmt, c.Transfer, "receive")
	if err != nil {
		return e, nil, err
	}
	if t != nil {
		e.BytesExpected = status.Fingerprint.WireBytes(payload, t.FromToken)
		e.BytesMoved, e.Chunks, e.TransferState = t.BytesMoved, t.Chunks, t.State
	}
	return e, t, nil
}

// endedTransfer waits until the transfer has ended, for the answer's last
// token can be out before the daemon has heard that the bytes were loaded. A
// transfer that the daemon does not know is nil.
func endedTransfer(ctx context.Context, mgmt *client.Client, id, direction string) (*api.Transfer, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		ts, err := mgmt.Transfers(ctx)
		if err != nil {
			return nil, err
		}
		var found *api.Transfer
		for i := range ts {
			if ts[i].ID == id && ts[i].Direction == direction {
				found = &ts[i]
			}
		}
		if found == nil || found.State == "committed" || found.State == "aborted" {
			return found, nil
		}
		select {
		case <-ctx.Done():
			return found, nil
		case <-tick.C:
		}
	}
}

func promptTokensComputed(ctx context.Context, mgmt *client.Client, engine string) (int, error) {
	resp, err := mgmt.EngineHTTP(ctx, engine, http.MethodGet, "/metrics", nil, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }() // everything that matters was read
	b, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("metrics of engine %s: %s", engine, resp.Status)
	}
	v, err := metric(b, computedMetric)
	return int(v), err
}

// metric sums the samples of one metric in Prometheus text.
func metric(text []byte, name string) (float64, error) {
	var sum float64
	found := false
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		fields := strings.Fields(rest[strings.LastIndexByte(rest, '}')+1:])
		if len(fields) == 0 {
			return 0, fmt.Errorf("metric line %q has no value", line)
		}
		v, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return 0, fmt.Errorf("metric line %q: %w", line, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, fmt.Errorf("there is no metric %s", name)
	}
	return sum, lines.Err()
}

// answer is what an engine said to one completion that did not stream.
type answer struct {
	Text         string
	Params       json.RawMessage
	PromptTokens int
	Verdict      string // the daemon's word on the transfer, if there was one
}

// ask sends one completion straight to an engine through its daemon's
// management API, without the router.
func ask(ctx context.Context, mgmt *client.Client, engine, model, prompt string, maxTokens int, params any, header http.Header) (answer, error) {
	req := map[string]any{"model": model, "prompt": prompt, "max_tokens": maxTokens, "temperature": 0}
	if params != nil {
		req["kv_transfer_params"] = params
	}
	body, err := json.Marshal(req)
	if err != nil {
		return answer{}, err
	}
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "application/json")
	resp, err := mgmt.EngineHTTP(ctx, engine, http.MethodPost, "/v1/completions", header, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }() // everything that matters was read
	b, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return answer{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("engine %s answered %s: %s", engine, resp.Status, b)
	}
	var out struct {
		Choices []struct {
			Text string `json:"text"`
		} `json:"choices"`
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
		} `json:"usage"`
		Params json.RawMessage `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return answer{}, fmt.Errorf("engine %s: %w", engine, err)
	}
	if len(out.Choices) != 1 {
		return answer{}, errors.New("the engine gave no choice")
	}
	return answer{
		Text: out.Choices[0].Text, Params: out.Params, PromptTokens: out.Usage.PromptTokens,
		Verdict: resp.Header.Get("X-Moai-Transfer-Verdict"),
	}, nil
}
