//go:build moai_damage

package formats

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/e2e/rig"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// Variables of the daemon's test build.
const (
	faultEnv = "MOAI_KVD_FAULT"
	reachEnv = "MOAI_KVD_FAULT_REACH"
)

// TestFormatsSpoiled shows that damage after verification, and transfers of nothing,
// are seen in the answers of pairs that convert.
func TestFormatsSpoiled(t *testing.T) {
	rec, _ := open(t)
	need, set := CI(8), Sets()[0]
	for _, model := range []string{set.Seeded, set.Reciting} {
		t.Run(strings.ReplaceAll(model, "/", " "), func(t *testing.T) {
			s := newStage(t, rec, set.Name, model)
			pick := func(side int) []Format {
				return slices.DeleteFunc(slices.Clone(set.Formats), func(f Format) bool {
					return !slices.ContainsFunc(need.DamagedPairs, func(p [2]string) bool { return p[side] == f.Name })
				})
			}
			ps, ds := pick(0), pick(1)
			s.nodes.Allow(t, api.Pair{Name: "all"}, names(ps), names(ds))
			s.start(ps, ds)
			for _, p := range need.DamagedPairs {
				if model == set.Seeded {
					s.flipAndNoop(p, need.Damaged)
				} else {
					s.swap(p, need.Damaged/2)
				}
			}
		})
	}
	for _, c := range []struct {
		name    string
		percent int
		share   func(Controls) Share
	}{
		{"flipped bits", 95, func(c Controls) Share { return c.Flip }},
		{"swapped pages", 95, func(c Controls) Share { return c.Swap }},
		{"transfers of nothing", 100, func(c Controls) Share { return c.Noop }},
	} {
		s := c.share(Compute(Plan{}, rec.rows, need).Controls)
		t.Logf("%s: %d of %d are noticed", c.name, s.Are, s.Of)
		if s.Of == 0 || s.Are*100 < s.Of*c.percent {
			t.Errorf("%s: only %d of %d are noticed", c.name, s.Are, s.Of)
		}
	}
}

// spoiled runs a job under a fault of the daemons, which are in this process.
func (s *stage) spoiled(fault string, j job) {
	s.t.Helper()
	if err := os.Setenv(faultEnv, fault); err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = os.Unsetenv(faultEnv) }()
	s.run(j)
}

func (s *stage) conversion(p [2]string) string {
	s.t.Helper()
	set := Sets()[0]
	at := func(name string) Format {
		return set.Formats[slices.IndexFunc(set.Formats, func(f Format) bool { return f.Name == name })]
	}
	v, err := verdict(s.model, at(p[0]), at(p[1]))
	if err != nil {
		s.t.Fatal(err)
	}
	return v.Conversion()
}

// flipAndNoop spoils transfers of seeded weights. A prompt of one token has no slot
// that decode reads.
func (s *stage) flipAndNoop(p [2]string, trials int) {
	s.t.Helper()
	ps := rig.Prompts(trials+1, 300, 5)[1:]
	j := job{claim: ClaimBits, prefill: p[0], decode: p[1], expected: s.conversion(p), ps: ps, want: s.alone(p[1], ClaimBits, ps)}
	j.kind = KindFlip
	s.spoiled("flip", j)
	j.kind, j.ps, j.want = KindNoop, j.ps[trials-4:], j.want[trials-4:]
	s.spoiled("noop", j)
}

// swap spoils transfers of reciting weights. What decode reads of a layer's page at its
// first step passes the later layers, and their lags, before it is a token; the length
// of the prompt chooses the layer.
func (s *stage) swap(p [2]string, trials int) {
	s.t.Helper()
	m, err := refmodel.Lookup(s.model)
	if err != nil {
		s.t.Fatal(err)
	}
	lags := m.Config.Lags
	steps := func(prompt []int) int {
		n := 32
		for _, lag := range lags[len(prompt)%len(lags)+1:] {
			n += lag
		}
		return n
	}
	ps, want := make([][]int, trials), make([]rig.Answer, trials)
	for i := range ps {
		ps[i] = prompt(m.Lag()+64+7*i, i) // 7 is prime to the layers: each has its turn
		if want[i].Tokens, err = m.Recite(ps[i], steps(ps[i])); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := os.Setenv(reachEnv, strings.Trim(strings.ReplaceAll(fmt.Sprint(lags), " ", ","), "[]")); err != nil {
		s.t.Fatal(err)
	}
	s.spoiled("swap", job{kind: KindSwap, claim: ClaimRecites, prefill: p[0], decode: p[1], expected: s.conversion(p), ps: ps, want: want, osl: steps})
}
