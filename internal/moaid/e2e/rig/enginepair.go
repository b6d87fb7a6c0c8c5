package rig

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
)

// EnginePair is a prefill engine on node A and a decode engine on node B.
type EnginePair struct {
	*Pair
	P, D *Engine
}

// StartPair starts linked nodes and an engine on each, of any formats and sizes
// that may be paired.
func StartPair(t testing.TB, o Options, p, d refengine.Config) *EnginePair {
	t.Helper()
	if o.Log == nil {
		o.Log = Log()
	}
	nodes := New(t, o)
	nodes.Register(t, o, p, d)
	return &EnginePair{nodes, StartEngine(t, nodes.A, p), StartEngine(t, nodes.B, d)}
}

// Split prefills on P and decodes on D, as a gateway does.
func (p *EnginePair) Split(ctx context.Context, prompt []int, n int) (Answer, *sched.TransferParams, error) {
	first, err := p.P.Complete(ctx, prompt, 1, &sched.TransferParams{DoRemoteDecode: true, TargetNode: p.D.Node, TargetEngine: p.D.Name})
	if err != nil {
		return Answer{}, nil, fmt.Errorf("prefill: %w", err)
	}
	if first.Transfer == nil {
		return Answer{}, nil, fmt.Errorf("prefill gave no kv_transfer_params")
	}
	got, err := p.D.Complete(ctx, prompt, n, first.Transfer)
	if err != nil {
		return Answer{}, nil, fmt.Errorf("decode: %w", err)
	}
	return got, first.Transfer, nil
}

// Received is how many KV bytes have arrived at decode's node.
func (p *EnginePair) Received(ctx context.Context) int64 {
	p.D.t.Helper()
	l, err := p.B.Manage.GetLink(ctx, "link")
	if err != nil {
		p.D.t.Fatal(err)
	}
	return l.BytesReceived
}

// Moved is how many KV bytes decode's node received for a transfer.
func (p *EnginePair) Moved(ctx context.Context, tr *sched.TransferParams) (int64, error) {
	list, err := p.B.Manage.Transfers(ctx)
	if err != nil {
		return 0, err
	}
	for _, x := range list {
		if x.ID == tr.TransferID && x.Direction == "receive" {
			return x.BytesMoved, nil
		}
	}
	return 0, fmt.Errorf("decode's node does not know transfer %s", tr.TransferID)
}

// Observe answers the prompts on the pair with n tokens each. Bytes are counted for each transfer,
// and again on the link. Computed tokens are counted together, since several
// requests run at once. A difference in a sum appears at the last prompt.
func (p *EnginePair) Observe(t testing.TB, ps [][]int, want []Answer, n int) ([]Observation, []Answer) {
	t.Helper()
	ctx := context.Background()
	computed, link := p.D.Metric(ctx, "reference_prompt_tokens_computed_total"), p.Received(ctx)
	got, run := make([]Answer, len(ps)), make([]Observation, len(ps))
	Each(t, ps, func(i int, pr []int) error {
		a, tr, err := p.Split(ctx, pr, n)
		if err != nil {
			return err
		}
		got[i] = a
		run[i] = Observation{PromptTokens: len(pr), Want: want[i].Tokens, Got: a.Tokens, Computed: 1, BytesExpected: p.D.Payload(len(pr))}
		run[i].Bytes, err = p.Moved(ctx, tr)
		return err
	})
	last := &run[len(run)-1]
	last.Computed += int(p.D.Metric(ctx, "reference_prompt_tokens_computed_total")-computed) - len(ps)
	left := p.Received(ctx) - link
	for _, o := range run {
		left -= o.Bytes
	}
	last.Bytes += left
	return run, got
}

// Quiet waits until engines and daemons hold nothing.
func (p *EnginePair) Quiet(t testing.TB) {
	t.Helper()
	for _, e := range []*Engine{p.P, p.D} {
		Eventually(t, 20*time.Second, func() error {
			if s := e.Stats(); s.BlocksFree != s.BlocksTotal || s.Running+s.Waiting > 0 {
				return fmt.Errorf("%s: %+v", e.Name, s)
			}
			return nil
		})
	}
	for _, n := range []*Node{p.A, p.B} {
		Eventually(t, 20*time.Second, func() error {
			st, err := n.Manage.Status(context.Background())
			if err != nil {
				return err
			}
			for _, e := range st.Engines {
				if e.StagingFree != Staging {
					return fmt.Errorf("%s: %d of %d staging bytes are free", e.Name, e.StagingFree, Staging)
				}
			}
			return nil
		})
	}
}

// Remote are the parameters of a request whose KV comes from P.
func (p *EnginePair) Remote(id string) *sched.TransferParams {
	return &sched.TransferParams{DoRemotePrefill: true, TransferID: id, SourceNode: p.P.Node, SourceEngine: p.P.Name}
}
