package pdpair

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/pdpair/canary"
)

const (
	canaryTokens = 16               // of each answer
	prompts      = 3                // tried until one has an answer to compare
	endWait      = 10 * time.Second // for the daemon to hear that the engine has loaded
	endPause     = 100 * time.Millisecond
	maxBody      = 4 << 20
)

// canaryRun sends a request through one prefill and one decode engine, by way of
// their nodes' daemons, and gathers what was seen.
type canaryRun struct {
	prefill, decode   engineref.Ref
	prefillD, decodeD *client.Client
	fingerprint       kvcache.Fingerprint // of the decode engine, in whose format KV crosses
	lossy             bool
	look              engines.Observation
}

func newCanary(x crossing, pd, dd *client.Client) (*canaryRun, error) {
	p, d := x.prefill, x.decode
	f, err := kvcache.ParseFingerprint([]byte(d.Fingerprint))
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", d.ID(), err)
	}
	pf, err := kvcache.ParseFingerprint([]byte(p.Fingerprint))
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", p.ID(), err)
	}
	k, err := engines.Lookup(d.Kind)
	if err != nil {
		return nil, err
	}
	// Several blocks of both ends.
	blocks := engines.KVCache{BlockSize: max(f.Storage.BlockSize, pf.Storage.BlockSize)}
	s := k.Defaults(engines.Spec{Name: d.Name, Kind: d.Kind, Role: d.Role, Model: engines.Model{ID: d.Model}, KVCache: blocks})
	return &canaryRun{
		prefill: p, decode: d, prefillD: pd, decodeD: dd, fingerprint: f, lossy: x.verdict.Class == kvcompat.Lossy, look: k.Observation(s),
	}, nil
}

// run does it. An error means that nothing could be seen.
func (c *canaryRun) run(ctx context.Context) (canary.Verdict, error) {
	for n := 1; ; n++ {
		e, err := c.attempt(ctx)
		if err != nil {
			return canary.Verdict{}, err
		}
		// An answer that ends at once compares nothing; another prompt may have a longer one.
		if len(e.Alone) == 0 && n < prompts {
			continue
		}
		return canary.Decide(e), nil
	}
}

func (c *canaryRun) attempt(ctx context.Context) (canary.Evidence, error) {
	var raw [24]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return canary.Evidence{}, fmt.Errorf("make a canary: %w", err)
	}
	id := hex.EncodeToString(raw[:16])
	prompt := canary.Prompt(binary.BigEndian.Uint64(raw[16:]), c.look.PromptTokens)

	alone, _, err := c.ask(ctx, c.decodeD, c.decode, prompt, canaryTokens, nil, nil)
	if err != nil {
		return canary.Evidence{}, err
	}
	before := c.counters(ctx)
	first, _, err := c.ask(ctx, c.prefillD, c.prefill, prompt, 1, map[string]any{
		"do_remote_decode": true, "do_remote_prefill": false, "transfer_id": id,
		"target_node": c.decode.Node.Name, "target_engine": c.decode.Name,
	}, nil)
	if err != nil {
		return canary.Evidence{}, err
	}
	if first.KVTransferParams == nil {
		return canary.Evidence{}, fmt.Errorf("engine %s answered without kv_transfer_params: its KV connector is off", c.prefill.ID())
	}
	pair, verdict, err := c.ask(ctx, c.decodeD, c.decode, prompt, canaryTokens, first.KVTransferParams, http.Header{
		"X-Moai-Transfer": {id}, "X-Moai-Source": {c.prefill.ID()},
	})
	if err != nil {
		return canary.Evidence{}, err
	}
	t, err := c.transfer(ctx, id)
	if err != nil {
		return canary.Evidence{}, err
	}
	after := c.counters(ctx)
	e := canary.Evidence{
		Alone: alone.Tokens, Pair: pair.Tokens, PromptTokens: pair.PromptTokens,
		Computed: rise(before[0], after[0]), Requests: rise(before[1], after[1]), Lossy: c.lossy,
	}
	e.Verdict, e.Code = canary.ParseVerdict(verdict)
	if t != nil {
		e.State, e.BytesMoved, e.FromToken = t.State, t.BytesMoved, t.FromToken
	}
	if sent, err := find(ctx, c.prefillD, id, "send"); err == nil && sent != nil {
		e.Conversion, e.Clipped, e.Rounded = sent.Conversion, sent.ValuesClipped, sent.ValuesRounded
	}
	if p, err := c.fingerprint.PayloadFor(pair.PromptTokens); err == nil {
		e.BytesExpected = c.fingerprint.WireBytes(p, 0)
	}
	return e, nil
}

// ask sends a completion to one engine and returns the daemon's word on the
// transfer, if there was one.
func (c *canaryRun) ask(ctx context.Context, m *client.Client, e engineref.Ref, prompt string, tokens int, kv map[string]any, h http.Header) (canary.Answer, string, error) {
	request := map[string]any{"model": e.Model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": false, "ignore_eos": true, "return_token_ids": true}
	if kv != nil {
		request["kv_transfer_params"] = kv
	}
	body, err := json.Marshal(request)
	if err != nil {
		return canary.Answer{}, "", fmt.Errorf("make a canary: %w", err)
	}
	if h == nil {
		h = http.Header{}
	}
	h.Set("Content-Type", "application/json")
	resp, err := m.EngineHTTP(ctx, e.Name, http.MethodPost, "/v1/completions", h, bytes.NewReader(body))
	if err != nil {
		return canary.Answer{}, "", err
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if cerr := resp.Body.Close(); err == nil {
		err = cerr
	}
	switch {
	case err != nil:
		return canary.Answer{}, "", fmt.Errorf("engine %s: read the answer: %w", e.ID(), err)
	case resp.StatusCode != http.StatusOK:
		return canary.Answer{}, "", fmt.Errorf("engine %s refused the canary with status %d: %s", e.ID(), resp.StatusCode, excerpt(b))
	}
	a, err := canary.ParseAnswer(b)
	if err != nil {
		return canary.Answer{}, "", fmt.Errorf("engine %s: %w", e.ID(), err)
	}
	return a, resp.Header.Get("X-Moai-Transfer-Verdict"), nil
}

func excerpt(b []byte) string {
	const most = 300
	if len(b) > most {
		b = b[:most]
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "?"))
}

// counters reads what the decode engine counted: prompt tokens computed, requests.
// What cannot be read is -1.
func (c *canaryRun) counters(ctx context.Context) [2]int64 {
	out := [2]int64{-1, -1}
	resp, err := c.decodeD.EngineHTTP(ctx, c.decode.Name, http.MethodGet, c.look.MetricsPath, nil, nil)
	if err != nil {
		return out
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if cerr := resp.Body.Close(); err != nil || cerr != nil || resp.StatusCode != http.StatusOK {
		return out
	}
	for i, name := range []string{c.look.ComputedTokens, c.look.Requests} {
		if n, err := canary.Sum(b, name); err == nil {
			out[i] = n
		}
	}
	return out
}

// rise is by how much a counter rose, or -1 when that cannot be told.
func rise(before, after int64) int64 {
	if before < 0 || after < before {
		return -1
	}
	return after - before
}

// transfer finds the transfer at the decode daemon and waits until it has ended:
// the last token may be out before the daemon heard that the bytes were loaded.
func (c *canaryRun) transfer(ctx context.Context, id string) (*api.Transfer, error) {
	bounded, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	for {
		found, err := find(ctx, c.decodeD, id, "receive")
		if err != nil {
			return nil, err
		}
		if found == nil || found.State == "committed" || found.State == "aborted" {
			return found, nil
		}
		pause := time.NewTimer(endPause)
		select {
		case <-pause.C:
		case <-bounded.Done():
			pause.Stop()
			return found, ctx.Err()
		}
	}
}

// find asks a daemon for one transfer; nil if it knows none.
func find(ctx context.Context, m *client.Client, id, direction string) (*api.Transfer, error) {
	ts, err := m.Transfers(ctx)
	if err != nil {
		return nil, err
	}
	for i := range ts {
		if ts[i].ID == id && ts[i].Direction == direction {
			return &ts[i], nil
		}
	}
	return nil, nil
}
