package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/e2e/rig"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
)

// as is the default format, or a preset's, on a number of ranks.
func as(t *testing.T, preset string, tensor int) refmodel.Format {
	t.Helper()
	f, err := refmodel.LookupFormat(preset)
	if err != nil {
		t.Fatal(err)
	}
	f.Tensor = tensor
	return f
}

// Engines that divide the model over other numbers of ranks, or keep KV in another
// format of the same values, have the answers of decode alone to the last bit.
func TestUnlikeEnginesEqualAlone(t *testing.T) {
	for _, c := range []struct {
		name, model string
		p, d        refmodel.Format
		replicas    int // of decode
	}{
		{"2 ranks to 1", "moai/seeded", as(t, "default", 2), as(t, "default", 1), 1},
		{"1 rank to 4, which have heads twice", "moai/seeded", as(t, "default", 1), as(t, "default", 4), 1},
		{"4 ranks to 2 of a latent vector", "moai/latent", as(t, "default", 4), as(t, "default", 2), 1},
		{"h100 to mi300x", "moai/seeded", as(t, "h100", 1), as(t, "mi300x", 1), 1},
		{"h100 on 2 ranks to 2 replicas of mi300x", "moai/moe", as(t, "h100", 2), as(t, "mi300x", 1), 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			ps := rig.Prompts(6, 700, 7)
			p, d := rig.Config("prefill-0", c.model, 1), rig.Config("decode-0", c.model, 1)
			p.Format, d.Format, d.DataParallel = c.p, c.d, c.replicas
			one := rig.Config("alone", c.model, 1)
			one.Format = c.d
			one.Format.Tensor = 1
			want := rig.Alone(t, one, ps, osl)
			pair := rig.StartPair(t, rig.Options{}, p, d)
			run, got := pair.Observe(t, ps, want, osl)
			for _, w := range rig.Check(run) {
				t.Error(w)
			}
			for i := range got {
				if !slices.Equal(got[i].Hashes, want[i].Hashes) {
					t.Errorf("prompt of %d tokens: the logits differ", len(ps[i]))
				}
			}
			pair.Quiet(t)
		})
	}
}

// A request is loaded by the replica that it was sent to.
func TestEachReplicaLoads(t *testing.T) {
	ps := rig.Prompts(3, 200, 3)
	want := rig.Alone(t, rig.Config("alone", "moai/seeded", 1), ps, osl)
	p := seededPair(t, rig.Options{}, func(_, d *refengine.Config) { d.DataParallel = 2 })
	for _, replica := range []int{1, 0, 1} {
		for i, pr := range ps[1:] {
			first, err := p.P.Complete(t.Context(), pr, 1, &sched.TransferParams{DoRemoteDecode: true, TargetNode: p.D.Node, TargetEngine: p.D.Name})
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.D.CompleteAt(t.Context(), &replica, pr, osl, first.Transfer)
			if err != nil || !slices.Equal(got.Hashes, want[i+1].Hashes) || got.Cached != len(pr)-1 {
				t.Errorf("replica %d: %+v, %v", replica, got, err)
			}
		}
	}
	p.Quiet(t)
}

// Engines of several ranks stay up while their daemons are restarted: each rank has
// its arena taken back, and transfers go on.
func TestDaemonsRestartUnderRanks(t *testing.T) {
	p := seededPair(t, rig.Options{}, func(p, d *refengine.Config) { p.Format.Tensor, d.Format.Tensor = 2, 2 })
	pr := rig.Prompts(2, 300, 4)[1]
	var tokens [][]int
	split := func() {
		t.Helper()
		got, _, err := p.Split(t.Context(), pr, osl)
		if err != nil || got.Cached != len(pr)-1 {
			t.Errorf("%+v, %v", got, err)
		}
		tokens = append(tokens, got.Tokens)
	}
	split()
	for n, e := range map[*rig.Node]*rig.Engine{p.A: p.P, p.B: p.D} {
		n.Stop()
		rig.Eventually(t, 10*time.Second, func() error {
			if err := e.Health(); err == nil || !strings.Contains(err.Error(), "rank 1") {
				return fmt.Errorf("health of an engine without its daemon is %w", errors.Join(err, errors.New("to name rank 1")))
			}
			return nil
		})
		n.Start()
		rig.Eventually(t, 20*time.Second, e.Health)
	}
	p.A.WaitLink(t)
	p.B.WaitLink(t)
	split()
	if !slices.Equal(tokens[0], tokens[1]) {
		t.Errorf("got %v", tokens)
	}
	p.Quiet(t)
}
