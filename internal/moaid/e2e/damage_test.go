//go:build moai_damage

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/e2e/rig"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// One flipped bit of any sent slot changes the logits of seeded weights.
func TestDamageChangesTheLogits(t *testing.T) {
	ps := rig.Prompts(trials, 400, 5)[1:] // a prompt of one token has no slot that decode reads
	want := rig.Alone(t, rig.Config("alone", "moai/seeded", 1), ps, osl)
	t.Setenv("MOAI_KVD_FAULT", "flip")
	p := rig.StartPair(t, rig.Options{}, rig.Config("prefill-0", "moai/seeded", 1), rig.Config("decode-0", "moai/seeded", 1))
	_, got := p.Observe(t, ps, want, osl)
	differ := 0
	for i := range got {
		if !slices.Equal(got[i].Hashes, want[i].Hashes) {
			differ++
		}
	}
	t.Logf("%d of %d differ", differ, len(ps))
	if differ*100 < len(ps)*95 {
		t.Errorf("damage changes the logits of only %d of %d prompts", differ, len(ps))
	}
}

// A transfer that moves no bytes is noticed.
func TestNoopTransferIsNoticed(t *testing.T) {
	ps := rig.Prompts(12, 400, 6)[1:]
	want := rig.Alone(t, rig.Config("alone", "moai/seeded", 1), ps, osl)
	t.Setenv("MOAI_KVD_FAULT", "noop")
	p := rig.StartPair(t, rig.Options{}, rig.Config("prefill-0", "moai/seeded", 1), rig.Config("decode-0", "moai/seeded", 1))
	run, _ := p.Observe(t, ps, want, osl)
	if wrong := rig.Check(run); len(wrong) < len(ps)-1 {
		t.Errorf("%d transfers that moved nothing gave only %v", len(ps), wrong)
	}
}

// A page in the place of another one of its layer changes the tokens of reciting
// weights, if decode's tokens depend on the page.
func TestDamageBySwappedPageChangesTokens(t *testing.T) {
	m, err := refmodel.Lookup("moai/reciting")
	if err != nil {
		t.Fatal(err)
	}
	lags := m.Config.Lags
	// What decode reads of a layer's page at its first step passes the later
	// layers, and their lags, before it is a token. The prompt's length chooses the layer.
	steps := func(prompt []int) int {
		n := 32
		for _, lag := range lags[len(prompt)%len(lags)+1:] {
			n += lag
		}
		return n
	}
	const swaps = 20
	ps, want := make([][]int, swaps), make([][]int, swaps)
	for i := range ps {
		ps[i] = rig.Prompts(2, m.Lag()+64+7*i, uint64(i+1))[1] // 7 is prime to the layers: each has its turn
		if want[i], err = m.Recite(ps[i], steps(ps[i])); err != nil {
			t.Fatal(err)
		}
	}
	p := rig.StartPair(t, rig.Options{}, rig.Config("prefill-0", "moai/reciting", 1), rig.Config("decode-0", "moai/reciting", 1))
	differing := func(ps, want [][]int) (n int) {
		got := make([]rig.Answer, len(ps))
		rig.Each(t, ps, func(i int, pr []int) (err error) {
			got[i], _, err = p.Split(t.Context(), pr, steps(pr))
			return err
		})
		for i := range ps {
			if !slices.Equal(got[i].Tokens, want[i]) {
				n++
			}
		}
		return n
	}
	if n := differing(ps[:len(lags)], want); n != 0 {
		t.Fatalf("%d of %d answers are wrong without damage", n, len(lags))
	}
	t.Setenv("MOAI_KVD_FAULT_REACH", strings.Trim(strings.ReplaceAll(fmt.Sprint(lags), " ", ","), "[]"))
	t.Setenv("MOAI_KVD_FAULT", "swap")
	n := differing(ps, want)
	t.Logf("%d of %d differ", n, swaps)
	if n*100 < swaps*95 {
		t.Errorf("replaced pages change the tokens of only %d of %d prompts", n, swaps)
	}
	if r := p.D.Metric(t.Context(), "reference_recomputes_total"); r != 0 {
		t.Errorf("decode computed %v prompts itself", r)
	}
}
