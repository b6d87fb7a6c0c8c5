package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/e2e/rig"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
)

const (
	trials  = 50
	longest = 4000
	osl     = 8
	atOnce  = 4 // requests, so that batches are mixed
)

// metric reads the sum of a series from the engine's /metrics.
func (e *engine) metric(ctx context.Context, name string) float64 {
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

// received is how many KV bytes have arrived at decode's node.
func (p *pair) received(ctx context.Context) int64 {
	p.d.t.Helper()
	l, err := p.B.Manage.GetLink(ctx, "link")
	if err != nil {
		p.d.t.Fatal(err)
	}
	return l.BytesReceived
}

// payload is what geometry gives for a prompt.
func (e *engine) payload(tokens int) int64 {
	e.t.Helper()
	pl, err := e.fp.PayloadFor(tokens)
	if err != nil {
		e.t.Fatal(err)
	}
	return pl.Bytes
}

// each runs f for all prompts, some at once, and fails the test with the first error.
func each(t *testing.T, ps [][]int, f func(i int, p []int) error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, len(ps))
	next := make(chan int)
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				errs[i] = f(i, ps[i])
			}
		})
	}
	for i := range ps {
		next <- i
	}
	close(next)
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("prompt %d of %d tokens: %v", i, len(ps[i]), err)
		}
	}
}

// alone answers the prompts on one engine without a connector.
func alone(t *testing.T, model string, ps [][]int) []answer {
	t.Helper()
	e := startEngine(t, nil, config("alone", model, 1))
	out := make([]answer, len(ps))
	each(t, ps, func(i int, p []int) (err error) {
		out[i], err = e.complete(t.Context(), p, osl, nil)
		return err
	})
	return out
}

// moved is how many KV bytes decode's node received for a transfer.
func (p *pair) moved(ctx context.Context, tr *sched.TransferParams) (int64, error) {
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

// observe answers the prompts on the pair. Bytes are counted for each transfer,
// and again on the link. Computed tokens are counted together, since several
// requests run at once. A difference in a sum appears at the last prompt.
func (p *pair) observe(t *testing.T, ps [][]int, want []answer) ([]Observation, []answer) {
	t.Helper()
	ctx := t.Context()
	computed, link := p.d.metric(ctx, "reference_prompt_tokens_computed_total"), p.received(ctx)
	got, run := make([]answer, len(ps)), make([]Observation, len(ps))
	each(t, ps, func(i int, pr []int) error {
		a, tr, err := p.split(ctx, pr, osl)
		if err != nil {
			return err
		}
		got[i] = a
		run[i] = Observation{PromptTokens: len(pr), Want: want[i].Tokens, Got: a.Tokens, Computed: 1, BytesExpected: p.d.payload(len(pr))}
		run[i].Bytes, err = p.moved(ctx, tr)
		return err
	})
	last := &run[len(run)-1]
	last.Computed += int(p.d.metric(ctx, "reference_prompt_tokens_computed_total")-computed) - len(ps)
	left := p.received(ctx) - link
	for _, o := range run {
		left -= o.Bytes
	}
	last.Bytes += left
	return run, got
}

// One request after another, so that what decode computes is known for each.
func TestSplitComputesOneTokenOfEachPrompt(t *testing.T) {
	ps := prompts(8, 700, 7)
	want := alone(t, "moai/seeded", ps)
	p := startPair(t, rig.Options{}, config("prefill-0", "moai/seeded", 1), config("decode-0", "moai/seeded", 1))
	for i, pr := range ps {
		run, _ := p.observe(t, [][]int{pr}, want[i:i+1])
		for _, w := range Check(run) {
			t.Error(w)
		}
	}
}

func TestSplitEqualsAlone(t *testing.T) {
	ps := prompts(trials, longest, 1)
	want := alone(t, "moai/seeded", ps)
	p := startPair(t, rig.Options{}, config("prefill-0", "moai/seeded", 1), config("decode-0", "moai/seeded", 1))
	run, got := p.observe(t, ps, want)
	for _, w := range Check(run) {
		t.Error(w)
	}
	for i := range got {
		if !slices.Equal(got[i].Hashes, want[i].Hashes) {
			t.Errorf("prompt of %d tokens: the logits differ", len(ps[i]))
		}
	}
	if n := p.d.metric(t.Context(), "reference_recomputes_total"); n != 0 {
		t.Errorf("decode computed %v prompts itself", n)
	}
	// Nothing is held when all is over.
	for _, e := range []*engine{p.p, p.d} {
		rig.Eventually(t, 5*time.Second, func() error {
			if free, all := e.metric(t.Context(), "reference_kv_blocks_free"), e.metric(t.Context(), "reference_kv_blocks_total"); free != all {
				return fmt.Errorf("%s has %v of %v blocks free", e.name, free, all)
			}
			return nil
		})
	}
	for _, n := range []*rig.Node{p.A, p.B} {
		rig.Eventually(t, 30*time.Second, func() error {
			st, err := n.Manage.Status(t.Context())
			if err != nil {
				return err
			}
			for _, e := range st.Engines {
				if e.StagingFree != staging {
					return fmt.Errorf("%s has %d of %d staging bytes free", e.Name, e.StagingFree, staging)
				}
			}
			return nil
		})
	}
}

func TestSplitRecites(t *testing.T) {
	m, err := refmodel.Lookup("moai/reciting")
	if err != nil {
		t.Fatal(err)
	}
	ps := make([][]int, 6)
	want := make([]answer, len(ps))
	for i, base := range prompts(len(ps), 300, 2) {
		ps[i] = slices.Concat(prompts(2, m.Lag(), uint64(i))[1], base) // longer than the lag
		if want[i].Tokens, err = m.Recite(ps[i], osl); err != nil {
			t.Fatal(err)
		}
	}
	p := startPair(t, rig.Options{}, config("prefill-0", "moai/reciting", 1), config("decode-0", "moai/reciting", 1))
	run, _ := p.observe(t, ps, want)
	for _, w := range Check(run) {
		t.Error(w)
	}
}

// A prefill engine with other weights that claims to have the right ones.
func TestWrongWeightsDiffer(t *testing.T) {
	ps := prompts(trials, 400, 3)
	want := alone(t, "moai/seeded", ps)
	wrong := config("prefill-0", "moai/seeded", 2)
	wrong.ClaimSeed = 1
	p := startPair(t, rig.Options{}, wrong, config("decode-0", "moai/seeded", 1))
	run, _ := p.observe(t, ps, want)
	differ := 0
	for _, o := range run {
		if !slices.Equal(o.Got, o.Want) {
			differ++
		}
	}
	t.Logf("%d of %d outputs differ", differ, trials)
	if differ < trials-1 {
		t.Errorf("only %d of %d outputs differ with wrong weights", differ, trials)
	}
}

// Runs in which nothing is transferred must not pass, although their tokens are right.
func TestNoTransferIsNoticed(t *testing.T) {
	ps := prompts(4, 150, 4)
	want := alone(t, "moai/seeded", ps)
	p := startPair(t, rig.Options{}, config("prefill-0", "moai/seeded", 1), config("decode-0", "moai/seeded", 1))
	ctx := t.Context()
	computed := p.d.metric(ctx, "reference_prompt_tokens_computed_total")
	run := make([]Observation, len(ps))
	for i, pr := range ps {
		got, err := p.d.complete(ctx, pr, osl, nil)
		if err != nil {
			t.Fatal(err)
		}
		now := p.d.metric(ctx, "reference_prompt_tokens_computed_total")
		run[i] = Observation{PromptTokens: len(pr), Want: want[i].Tokens, Got: got.Tokens, Computed: int(now - computed), Bytes: p.received(ctx), BytesExpected: p.d.payload(len(pr))}
		computed = now
		if !slices.Equal(run[i].Got, run[i].Want) {
			t.Errorf("prompt of %d tokens: decode alone differs", len(pr))
		}
	}
	if wrong := Check(run); len(wrong) < len(ps) {
		t.Errorf("%d prompts without a transfer gave only %v", len(ps), wrong)
	}
}
