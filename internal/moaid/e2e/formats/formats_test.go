package formats

import (
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/e2e/rig"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
)

// Variables with which the gate asks for the whole run: a file for rows, and prompts a pair.
const (
	rowsEnv    = "MOAI_FORMATS_ROWS"
	promptsEnv = "MOAI_FORMATS_PROMPTS"
)

// open gives a recorder, and whether the whole run is asked for.
func open(t *testing.T) (*recorder, bool) {
	t.Helper()
	if testing.Short() {
		t.Skip("engines run for minutes")
	}
	path := os.Getenv(rowsEnv)
	if path == "" {
		return &recorder{}, false
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return &recorder{file: f}, true
}

// few is a catalogue of the default pair, a refused format and what two ranks change.
func few() []Set {
	s := Sets()[0]
	s.Formats = slices.DeleteFunc(s.Formats, func(f Format) bool {
		return !slices.Contains([]string{DefaultPrefill, DefaultDecode, "mi300x-tp2", "bf16", "bf16-shuffled"}, f.Name)
	})
	return []Set{s}
}

// TestFormats runs all pairs of the catalogue. Without a file for rows it runs a few
// and looks at the figures itself.
func TestFormats(t *testing.T) {
	rec, whole := open(t)
	sets, need := Sets(), CI(8)
	if s := os.Getenv(promptsEnv); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("%s=%s is no number of prompts", promptsEnv, s)
		}
		need = CI(n)
	}
	if !whole {
		sets = few()
		need.DefaultPrompts, need.WrongDefault, need.DamagedPairs = 8, 20, nil
	}
	plan, err := NewPlan(sets)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sets {
		t.Run(s.Name, func(t *testing.T) { runModel(t, rec, plan, s, s.Seeded, need) })
		if s.Reciting != "" {
			t.Run(s.Name+" reciting", func(t *testing.T) { runModel(t, rec, plan, s, s.Reciting, need) })
		}
	}
	t.Run("pools", func(t *testing.T) { runPools(t, rec, need.Prompts) })
	t.Run("lossy", func(t *testing.T) { runLossy(t, rec) })
	t.Run("inexact", func(t *testing.T) { runInexact(t, rec) })
	if whole {
		return
	}
	f := Compute(plan, rec.rows, need)
	t.Logf("%+v", f)
	for _, p := range f.Problems {
		t.Error(p)
	}
}

// runModel runs all planned pairs of one model of a set, with their controls, on
// engines that are started once.
func runModel(t *testing.T, rec *recorder, plan Plan, set Set, model string, need Required) {
	pairs := slices.DeleteFunc(slices.Clone(plan.Pairs), func(p Pair) bool { return p.Set != set.Name || p.Model != model })
	refusals := slices.DeleteFunc(slices.Clone(plan.Refusals), func(r Refusal) bool { return r.Set != set.Name || r.Model != model })
	expected := map[[2]string]string{}
	prefill, decode := map[string]bool{}, map[string]bool{}
	for i := range pairs {
		p := &pairs[i]
		expected[[2]string{p.Prefill.Name, p.Decode.Name}] = told(p.Class, p.Conversion)
		prefill[p.Prefill.Name], decode[p.Decode.Name] = true, true
	}
	for i := range refusals {
		r := &refusals[i]
		expected[[2]string{r.Prefill.Name, r.Decode.Name}] = r.Verdict.Err().Error()
		prefill[r.Prefill.Name], decode[r.Decode.Name] = true, true
	}
	pick := func(m map[string]bool) []Format {
		return slices.DeleteFunc(slices.Clone(set.Formats), func(f Format) bool { return !m[f.Name] })
	}
	s := newStage(t, rec, set.Name, model)
	ps, ds := pick(prefill), pick(decode)
	s.allow(ps, ds)
	s.start(ps, ds)
	s.verdicts(expected)
	for _, p := range ps {
		of := slices.DeleteFunc(slices.Clone(pairs), func(x Pair) bool { return x.Prefill.Name != p.Name })
		if len(of) == 0 {
			continue
		}
		t.Run(p.Name, func(t *testing.T) { s.of(t, p, of, need) })
		s.nodes.A.Withdraw(t, "wrong-"+p.Name)
	}
	s.refused(refusals)
	if set.Name == DefaultSet && model == set.Seeded {
		i := slices.IndexFunc(pairs, func(p Pair) bool { return p.Default() })
		s.silent(DefaultDecode, pairs[i].Conversion, s.prompts(ClaimBits, 4)[2:])
	}
}

// of runs the pairs of one prefill format, and wrong weights on each.
func (s *stage) of(t *testing.T, f Format, pairs []Pair, need Required) {
	wrong := s.wrongPrefill(t, f)
	for i := range pairs {
		p := &pairs[i]
		n, bad := need.Prompts, 1
		if p.Default() {
			n = max(n, need.DefaultPrompts)
			if p.Claim == ClaimBits {
				bad = need.WrongDefault
			}
		}
		j := job{kind: KindPlain, claim: p.Claim, prefill: p.Prefill.Name, decode: p.Decode.Name, expected: p.Conversion, ps: s.prompts(p.Claim, n)}
		j.want = s.alone(p.Decode.Name, p.Claim, j.ps)
		s.run(j)
		j.kind, j.engine, j.ps = KindWrong, wrong, s.prompts(p.Claim, bad)
		j.want = s.alone(p.Decode.Name, p.Claim, j.ps)
		s.run(j)
	}
}

// refused sends prompts to a few of the pairs that may not exchange KV.
func (s *stage) refused(refusals []Refusal) {
	const most = 6
	for i := 0; i < len(refusals); i += max(1, len(refusals)/most) {
		r := &refusals[i]
		ps := s.prompts(ClaimBits, 1)
		s.run(job{kind: KindRefused, claim: ClaimBits, prefill: r.Prefill.Name, decode: r.Decode.Name, ps: ps, want: s.alone(r.Decode.Name, ClaimBits, ps)})
	}
}

// runPools has two engines of unlike formats on each node, in one pair, and prompts
// on all four ways at once.
func runPools(t *testing.T, rec *recorder, prompts int) {
	set := Sets()[0]
	pick := func(names ...string) []Format {
		return slices.DeleteFunc(slices.Clone(set.Formats), func(f Format) bool { return !slices.Contains(names, f.Name) })
	}
	ps, ds := pick("h100", "h100-tp2"), pick("mi300x", "mi300x-tp2")
	s := newStage(t, rec, PoolsSet, set.Seeded)
	s.nodes.Allow(t, api.Pair{Name: "all"}, names(ps), names(ds))
	s.start(ps, ds)
	s.cross(ps, ds, s.prompts(ClaimBits, prompts))
}

// lossyPairs are formats between which values are lost.
var lossyPairs = [][2]string{{"fp32", "bf16"}, {"bf16", "fn"}, {"bf16", "fp16"}, {"fnuz", "fn"}, {DefaultDecode, DefaultPrefill}}

// runLossy shows that lossy pairs are refused unless that is allowed, and what they
// lose then.
func runLossy(t *testing.T, rec *recorder) {
	set := Sets()[0]
	pick := func(side int) []Format {
		return slices.DeleteFunc(slices.Clone(set.Formats), func(f Format) bool {
			return !slices.ContainsFunc(lossyPairs, func(p [2]string) bool { return p[side] == f.Name })
		})
	}
	ps, ds := pick(0), pick(1)
	s := newStage(t, rec, "lossy", set.Seeded)
	s.start(ps, ds)
	for _, e := range s.decode {
		e.WithLogits = true
	}
	for _, x := range lossyPairs {
		pair := api.Pair{Name: x[0] + "-to-" + x[1]}
		prompts := s.prompts(ClaimBits, 8)
		want := s.alone(x[1], ClaimBits, prompts)
		s.nodes.Allow(t, pair, x[:1], x[1:])
		s.run(job{kind: KindRefused, claim: ClaimBits, prefill: x[0], decode: x[1], ps: prompts[:1], want: want[:1]})
		pair.AllowLossy = true
		s.nodes.Allow(t, pair, x[:1], x[1:])
		p, d := s.prefill[x[0]], s.decode[x[1]]
		v := kvcompat.Check(p.Fingerprint, d.Fingerprint, pair.Options)
		if v.Class != kvcompat.Lossy {
			t.Errorf("%s → %s is %s", x[0], x[1], v.Class)
		}
		s.run(job{kind: KindLossy, prefill: x[0], decode: x[1], expected: v.Conversion(), ps: prompts, want: want})
	}
}

// runInexact has a prefill engine keep elements beyond the range of decode's, which it
// says it would not: it divides values by factors that it does not tell.
func runInexact(t *testing.T, rec *recorder) {
	set := Sets()[0]
	s := newStage(t, rec, "inexact", set.Reciting)
	for _, f := range set.Formats {
		switch f.Name {
		case "fn":
			cfg := config(f.Name, s.model, f)
			cfg.ClaimScales, cfg.Format.Scales = f.Scales, kvcache.ScaleHead
			s.nodes.A.Enroll(t, "prefill", cfg, staging)
			s.prefill[f.Name] = rig.StartEngine(t, s.nodes.A, cfg)
		case "fnuz":
			s.start(nil, []Format{f})
		}
	}
	s.nodes.Allow(t, api.Pair{Name: "all"}, []string{"fn"}, []string{"fnuz"})
	ps := s.prompts(ClaimRecites, 4)
	s.run(job{kind: KindInexact, claim: ClaimRecites, prefill: "fn", decode: "fnuz", ps: ps, want: s.alone("fnuz", ClaimRecites, ps)})
}
