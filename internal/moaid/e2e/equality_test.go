package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/e2e/rig"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

const (
	trials  = 50
	longest = 4000
	osl     = 8
)

// One request after another, so that what decode computes is known for each.
func TestSplitComputesOneTokenOfEachPrompt(t *testing.T) {
	ps := rig.Prompts(8, 700, 7)
	want := rig.Alone(t, rig.Config("alone", "moai/seeded", 1), ps, osl)
	p := rig.StartPair(t, rig.Options{}, rig.Config("prefill-0", "moai/seeded", 1), rig.Config("decode-0", "moai/seeded", 1))
	for i, pr := range ps {
		run, _ := p.Observe(t, [][]int{pr}, want[i:i+1], osl)
		for _, w := range rig.Check(run) {
			t.Error(w)
		}
	}
}

func TestSplitEqualsAlone(t *testing.T) {
	ps := rig.Prompts(trials, longest, 1)
	want := rig.Alone(t, rig.Config("alone", "moai/seeded", 1), ps, osl)
	p := rig.StartPair(t, rig.Options{}, rig.Config("prefill-0", "moai/seeded", 1), rig.Config("decode-0", "moai/seeded", 1))
	run, got := p.Observe(t, ps, want, osl)
	for _, w := range rig.Check(run) {
		t.Error(w)
	}
	for i := range got {
		if !slices.Equal(got[i].Hashes, want[i].Hashes) {
			t.Errorf("prompt of %d tokens: the logits differ", len(ps[i]))
		}
	}
	if n := p.D.Metric(t.Context(), "reference_recomputes_total"); n != 0 {
		t.Errorf("decode computed %v prompts itself", n)
	}
	// Nothing is held when all is over.
	for _, e := range []*rig.Engine{p.P, p.D} {
		rig.Eventually(t, 5*time.Second, func() error {
			if free, all := e.Metric(t.Context(), "reference_kv_blocks_free"), e.Metric(t.Context(), "reference_kv_blocks_total"); free != all {
				return fmt.Errorf("%s has %v of %v blocks free", e.Name, free, all)
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
				if e.StagingFree != rig.Staging {
					return fmt.Errorf("%s has %d of %d staging bytes free", e.Name, e.StagingFree, rig.Staging)
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
	want := make([]rig.Answer, len(ps))
	for i, base := range rig.Prompts(len(ps), 300, 2) {
		ps[i] = slices.Concat(rig.Prompts(2, m.Lag(), uint64(i))[1], base) // longer than the lag
		if want[i].Tokens, err = m.Recite(ps[i], osl); err != nil {
			t.Fatal(err)
		}
	}
	p := rig.StartPair(t, rig.Options{}, rig.Config("prefill-0", "moai/reciting", 1), rig.Config("decode-0", "moai/reciting", 1))
	run, _ := p.Observe(t, ps, want, osl)
	for _, w := range rig.Check(run) {
		t.Error(w)
	}
}

// A prefill engine with other weights that claims to have the right ones.
func TestWrongWeightsDiffer(t *testing.T) {
	ps := rig.Prompts(trials, 400, 3)
	want := rig.Alone(t, rig.Config("alone", "moai/seeded", 1), ps, osl)
	wrong := rig.Config("prefill-0", "moai/seeded", 2)
	wrong.ClaimSeed = 1
	p := rig.StartPair(t, rig.Options{}, wrong, rig.Config("decode-0", "moai/seeded", 1))
	run, _ := p.Observe(t, ps, want, osl)
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
	ps := rig.Prompts(4, 150, 4)
	want := rig.Alone(t, rig.Config("alone", "moai/seeded", 1), ps, osl)
	p := rig.StartPair(t, rig.Options{}, rig.Config("prefill-0", "moai/seeded", 1), rig.Config("decode-0", "moai/seeded", 1))
	ctx := t.Context()
	computed := p.D.Metric(ctx, "reference_prompt_tokens_computed_total")
	run := make([]rig.Observation, len(ps))
	for i, pr := range ps {
		got, err := p.D.Complete(ctx, pr, osl, nil)
		if err != nil {
			t.Fatal(err)
		}
		now := p.D.Metric(ctx, "reference_prompt_tokens_computed_total")
		run[i] = rig.Observation{PromptTokens: len(pr), Want: want[i].Tokens, Got: got.Tokens, Computed: int(now - computed), Bytes: p.Received(ctx), BytesExpected: p.D.Payload(len(pr))}
		computed = now
		if !slices.Equal(run[i].Got, run[i].Want) {
			t.Errorf("prompt of %d tokens: decode alone differs", len(pr))
		}
	}
	if wrong := rig.Check(run); len(wrong) < len(ps) {
		t.Errorf("%d prompts without a transfer gave only %v", len(ps), wrong)
	}
}
