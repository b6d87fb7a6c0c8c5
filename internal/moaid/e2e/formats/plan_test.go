package formats

import (
	"slices"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// The catalogue has everything that a format consists of.
func TestCatalogueCovers(t *testing.T) {
	have := map[string]bool{}
	for _, s := range Sets() {
		m, err := refmodel.Lookup(s.Seeded)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, f := range s.Formats {
			if names[f.Name] {
				t.Errorf("%s: two formats are called %s", s.Name, f.Name)
			}
			names[f.Name] = true
			if err := f.Check(m); err != nil {
				t.Errorf("%s, %s: %v", s.Name, f.Name, err)
			}
			have["order "+string(f.Order)] = true
			have["packing "+string(f.Packing)] = true
			have["dtype "+string(f.DType)] = true
			have["scales "+string(f.Scales)] = true
			have["kernel blocks"] = have["kernel blocks"] || f.KernelBlock > 0 && f.KernelBlock < f.BlockSize
			have["padding"] = have["padding"] || f.Padding > 0
			have["replicas"] = have["replicas"] || f.Replicas == 2
			have["heads twice"] = have["heads twice"] || m.Config.KVHeads < f.Tensor
			for _, n := range []int{1, 2, 4} {
				if f.Tensor == n {
					have[s.Name+" tp"+string(rune('0'+n))] = true
				}
			}
			for _, preset := range refmodel.FormatNames() {
				p, err := refmodel.LookupFormat(preset)
				if err != nil {
					t.Fatal(err)
				}
				if f.Format == p {
					have["preset "+preset] = true
				}
			}
		}
	}
	want := []string{"kernel blocks", "padding", "replicas", "heads twice"}
	for _, o := range kvcache.Orders() {
		want = append(want, "order "+string(o))
	}
	for _, p := range kvcache.Packings() {
		want = append(want, "packing "+string(p))
	}
	for _, d := range refmodel.DTypes() {
		want = append(want, "dtype "+string(d))
	}
	for _, s := range refmodel.ScaleKinds() {
		want = append(want, "scales "+string(s))
	}
	for _, p := range refmodel.FormatNames() {
		want = append(want, "preset "+p)
	}
	for _, s := range Sets() {
		for _, tp := range []string{" tp1", " tp2", " tp4"} {
			want = append(want, s.Name+tp)
		}
	}
	for _, w := range want {
		if !have[w] {
			t.Errorf("no format has %s", w)
		}
	}
}

// What is run is what is allowed, with a claim that can be kept.
func TestPlan(t *testing.T) {
	plan, err := NewPlan(Sets())
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]*Pair{}
	formats := map[[3]string]bool{}
	claims := map[Claim]int{}
	for i := range plan.Pairs {
		p := &plan.Pairs[i]
		if ids[p.ID()] != nil {
			t.Errorf("%s is planned twice", p.ID())
		}
		ids[p.ID()] = p
		claims[p.Claim]++
		formats[[3]string{p.Set, p.Prefill.Name, p.Decode.Name}] = true
		if p.Class != kvcompat.Exact && p.Class != kvcompat.Guarded {
			t.Errorf("%s is %s", p.ID(), p.Class)
		}
	}
	t.Logf("%d pairs of formats, %v, %d refusals", len(formats), claims, len(plan.Refusals))
	for _, r := range plan.Refusals {
		if formats[[3]string{r.Set, r.Prefill.Name, r.Decode.Name}] {
			t.Errorf("%s is refused and run", r.ID())
		}
		formats[[3]string{r.Set, r.Prefill.Name, r.Decode.Name}] = true
	}
	all := 0
	for _, s := range Sets() {
		all += len(s.Formats) * len(s.Formats)
	}
	if len(formats) != all {
		t.Errorf("%d of %d pairs of formats are run or refused", len(formats), all)
	}
	for _, want := range []struct {
		prefill, decode, model string
		class                  kvcompat.Class
		claim                  Claim
	}{
		{"h100", "mi300x", "moai/seeded", kvcompat.Exact, ClaimBits},
		{"h100", "mi300x", "moai/reciting-near", kvcompat.Exact, ClaimRecites},
		{"h100-tp4", "mi300x-tp2", "moai/seeded", kvcompat.Exact, ClaimBits},
		{"bf16-tp2", "bf16-tp4", "moai/seeded", kvcompat.Exact, ClaimBits},
		{"bf16", "bf16-tp4", "moai/seeded", kvcompat.Exact, ClaimBits},
		{"bf16", "bf16", "moai/seeded", kvcompat.Exact, ClaimBits},
		{"bf16", "fp32", "moai/reciting-near", kvcompat.Exact, ClaimRecites},
		{"fn", "fnuz", "moai/reciting-near", kvcompat.Guarded, ClaimRecites},
	} {
		p := ids[id(DefaultSet, want.model, want.prefill, want.decode)]
		if p == nil || p.Class != want.class || p.Claim != want.claim {
			t.Errorf("%s → %s with %s: %+v", want.prefill, want.decode, want.model, p)
		}
	}
	if slices.ContainsFunc(plan.Pairs, func(p Pair) bool { return p.Claim == ClaimBits && !SameValues(p.Prefill, p.Decode) }) {
		t.Error("equal bits are claimed of unlike values")
	}
}
