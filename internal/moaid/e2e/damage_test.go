//go:build moai_damage

package e2e

import (
	"slices"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/e2e/rig"
)

// One flipped bit of any sent slot changes the logits of seeded weights.
func TestDamageChangesTheLogits(t *testing.T) {
	ps := prompts(trials, 400, 5)[1:] // a prompt of one token has no slot that decode reads
	want := alone(t, "moai/seeded", ps)
	t.Setenv("MOAI_KVD_FAULT", "flip")
	p := startPair(t, rig.Options{}, config("prefill-0", "moai/seeded", 1), config("decode-0", "moai/seeded", 1))
	_, got := p.observe(t, ps, want)
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
	ps := prompts(12, 400, 6)[1:]
	want := alone(t, "moai/seeded", ps)
	t.Setenv("MOAI_KVD_FAULT", "noop")
	p := startPair(t, rig.Options{}, config("prefill-0", "moai/seeded", 1), config("decode-0", "moai/seeded", 1))
	run, _ := p.observe(t, ps, want)
	if wrong := Check(run); len(wrong) < len(ps)-1 {
		t.Errorf("%d transfers that moved nothing gave only %v", len(ps), wrong)
	}
}
