package pdpair

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
)

func TestCrossingsAreKnownAtPlan(t *testing.T) {
	t.Parallel()
	p := good()
	cs, ok := p.crossings()
	if !ok || len(cs) != 2 || cs[1].prefill.Name != "p1" || cs[1].verdict.Class != kvcompat.Exact {
		t.Fatalf("got %+v, %v", cs, ok)
	}
	if text := lossText(cs); text != "" {
		t.Errorf("equal caches lose %q", text)
	}
	want := map[string]string{"prefill": "h100-0/p0", "decode": "mi300x-0/d0", "class": "exact", "what": "none"}
	first, _ := conversions(cs).Elements()[0].(types.Object)
	for name, w := range want {
		if v, _ := first.Attributes()[name].(types.String); v.ValueString() != w {
			t.Errorf("%s is %s, want %s", name, v, w)
		}
	}
	p.optionsKnown = false
	if _, ok := p.crossings(); ok {
		t.Error("conversions are known though options are not")
	}
	p = good()
	p.decode[0].Known = false
	if _, ok := p.crossings(); ok {
		t.Error("conversions are known though an engine is not")
	}
}

func TestLossesAreNamed(t *testing.T) {
	t.Parallel()
	exact := kvcompat.Step{Attribute: "storage.block_size", From: "16", To: "64", Class: kvcompat.Exact, Note: "blocks are cut anew"}
	lossy := kvcompat.Step{Attribute: "storage.dtype", From: "bf16", To: "fp8_e4m3fn", Class: kvcompat.Lossy, Note: "values are rounded to 3 bits of mantissa"}
	c := crossing{
		prefill: ref("h100-0", "p0", engines.RolePrefill, "moai/seeded"), decode: ref("mi300x-0", "d0", engines.RoleDecode, "moai/seeded"),
		verdict: kvcompat.Verdict{Class: kvcompat.Lossy, Steps: []kvcompat.Step{exact, lossy}},
	}
	if got := c.what(); got != "storage.block_size 16 → 64, storage.dtype bf16 → fp8_e4m3fn" {
		t.Errorf("got %q", got)
	}
	text := lossText([]crossing{c, {verdict: kvcompat.Verdict{Class: kvcompat.Exact}}})
	if !strings.Contains(text, "From h100-0/p0 to mi300x-0/d0:\n  - storage.dtype bf16 → fp8_e4m3fn: values are rounded") || strings.Contains(text, "block_size") {
		t.Errorf("got %q", text)
	}
}

// What a refusal says is at the prefill engine, with every reason. Options that are
// not known yet refuse nothing that they might allow.
func TestRefusals(t *testing.T) {
	t.Parallel()
	p := good()
	p.prefill[1] = refOf("h100-1", "p1", engines.RolePrefill, engines.Spec{Model: engines.Model{ID: "moai/seeded"}, Reference: engines.Reference{WeightsSeed: new(uint64)}})
	for _, known := range []bool{true, false} {
		p.optionsKnown = known
		fs := p.faults()
		if len(fs) != 1 || fs[0].path().String() != "prefill[1]" || !strings.Contains(fs[0].detail, "h100-1/p1 writes cannot be read by mi300x-0/d0") || !strings.Contains(fs[0].detail, "model") {
			t.Errorf("options known %v: got %+v", known, fs)
		}
	}
}

// A refusal that is of the decode engine alone is at that engine.
func TestRefusalOfTheDecodeEngine(t *testing.T) {
	t.Parallel()
	shuffled := engines.Spec{Model: engines.Model{ID: "moai/seeded"}, Reference: engines.Reference{Packing: "shuffled"}}
	for _, c := range []struct {
		change func(*pools)
		at     string
	}{
		{func(p *pools) { p.decode[0] = refOf("mi300x-0", "d0", engines.RoleDecode, shuffled) }, "decode[0]"},
		{func(p *pools) { p.prefill[0] = refOf("h100-0", "p0", engines.RolePrefill, shuffled) }, "prefill[0]"},
		{func(p *pools) {
			p.prefill[0] = refOf("h100-0", "p0", engines.RolePrefill, shuffled)
			p.decode[0] = refOf("mi300x-0", "d0", engines.RoleDecode, shuffled)
		}, "prefill[0]"},
	} {
		p := good()
		c.change(&p)
		if fs := p.faults(); len(fs) == 0 || fs[0].path().String() != c.at || !strings.Contains(fs[0].detail, "Set reference.packing") {
			t.Errorf("got %+v, want %s", fs, c.at)
		}
	}
}

// The presets of the two vendors convert exactly one way, and lose a value the other.
func TestPresetsAcrossVendors(t *testing.T) {
	t.Parallel()
	of := func(preset string) engines.Spec {
		return engines.Spec{Model: engines.Model{ID: "moai/reciting"}, Preset: preset}
	}
	p := good()
	p.prefill, p.decode = []engineref.Ref{refOf("h100-0", "p0", engines.RolePrefill, of("h100"))}, []engineref.Ref{refOf("mi300x-0", "d0", engines.RoleDecode, of("mi300x"))}
	if cs, ok := p.crossings(); !ok || cs[0].verdict.Class != kvcompat.Exact || len(p.faults()) > 0 || !strings.Contains(cs[0].what(), "fp8_e4m3fn → fp8_e4m3fnuz") {
		t.Errorf("h100 to mi300x: %+v, %v", cs, p.faults())
	}
	p.prefill, p.decode = []engineref.Ref{refOf("h100-0", "p0", engines.RolePrefill, of("mi300x"))}, []engineref.Ref{refOf("mi300x-0", "d0", engines.RoleDecode, of("h100"))}
	if fs := p.faults(); len(fs) != 1 || !strings.Contains(fs[0].detail, "allow_lossy = true") {
		t.Errorf("mi300x to h100: %+v", fs)
	}
	p.options.AllowLossy = true
	if cs, ok := p.crossings(); !ok || len(p.faults()) > 0 || !strings.Contains(lossText(cs), "storage.dtype fp8_e4m3fnuz → fp8_e4m3fn: ±240") {
		t.Errorf("mi300x to h100, allowed: %+v", cs)
	}
}
