package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"pgregory.net/rapid"

	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// Whatever an engine was made with, an import asks for the same, and says nothing
// about what is a default beside what was said.
func TestFormatsAreReadBack(t *testing.T) {
	t.Parallel()
	k := kind(t)
	for _, c := range []struct {
		name   string
		change func(*engines.Spec)
		null   []string
	}{
		{"preset", func(s *engines.Spec) { s.Preset = "mi300x" }, []string{"kv_cache", "reference", "parallel", "staging"}},
		{"preset and block size", func(s *engines.Spec) { s.Preset, s.KVCache.BlockSize = "h100", 64 }, []string{"reference"}},
		{"dtype without scales", func(s *engines.Spec) { s.Preset, s.KVCache.DType = "h100", "bf16" }, []string{"reference"}},
		{"all ranks", func(s *engines.Spec) {
			s.Parallel, s.GPUs = engines.Parallel{Tensor: 4, Data: 2}, []int{0, 1, 2, 3, 4, 5, 6, 7}
		}, []string{"kv_cache", "reference", "staging"}},
		{"many ranks", func(s *engines.Spec) {
			s.Model.ID, s.Parallel = "moai/reciting-wide", engines.Parallel{Tensor: 8, Data: 4}
		}, []string{"staging"}},
		{"everything", func(s *engines.Spec) {
			s.KVCache = engines.KVCache{DType: "fp8_e4m3fn", BlockSize: 32, Layout: "BLHNC"}
			s.Reference = engines.Reference{Packing: "apart", Scales: "head", KernelBlockSize: 16, Padding: 64}
		}, nil},
	} {
		d := desiredOf(t, c.change)
		var m model
		m.setSpec(t.Context(), d.spec, k)
		again, err := m.spec(k)
		if err != nil {
			t.Fatal(err)
		}
		back := desiredOf(t, func(s *engines.Spec) { *s = again })
		if string(back.service.Config.Content) != string(d.service.Config.Content) || back.service.UnitText != d.service.UnitText {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, back.service.Config.Content, d.service.Config.Content)
		}
		for name, o := range map[string]types.Object{"kv_cache": m.KVCache, "reference": m.Reference, "parallel": m.Parallel, "staging": m.Staging} {
			if slices.Contains(c.null, name) && !o.IsNull() {
				t.Errorf("%s: %s is %v", c.name, name, o)
			}
		}
	}
}

func TestEveryModelIsDescribed(t *testing.T) {
	t.Parallel()
	id, ok := modelAttribute().(schema.SingleNestedAttribute)
	if !ok {
		t.Fatal("model is no object")
	}
	for _, name := range refmodel.Names() {
		if !strings.Contains(id.Attributes["id"].GetMarkdownDescription(), "`"+name+"`") {
			t.Errorf("the description of model.id does not name %s", name)
		}
	}
}

// bytesPerToken is the slope of what a transfer carries.
func TestBytesPerToken(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := engines.Spec{
			Name: "e", Kind: "reference", Role: engines.RoleBoth,
			Model:    engines.Model{ID: rapid.SampledFrom(refmodel.Names()).Draw(rt, "model")},
			Preset:   rapid.SampledFrom(refmodel.FormatNames()).Draw(rt, "preset"),
			Parallel: engines.Parallel{Tensor: rapid.SampledFrom([]int{1, 2, 4}).Draw(rt, "tensor")},
			KVCache:  engines.KVCache{DType: rapid.SampledFrom([]string{"auto", "bf16", "fp32", "fp8"}).Draw(rt, "dtype")},
		}
		s.Reference.Padding = 16 * rapid.IntRange(0, 3).Draw(rt, "padding")
		k := kind(t)
		f, err := k.Fingerprint(k.Defaults(s))
		if err != nil {
			rt.Fatal(err)
		}
		wire := func(tokens int) int64 {
			p, err := f.PayloadFor(tokens)
			if err != nil {
				rt.Fatal(err)
			}
			return f.WireBytes(p, 0)
		}
		block := int64(f.Storage.BlockSize)
		grown := wire(4096+f.Storage.BlockSize) - wire(4096)
		if got := bytesPerToken(f); got != (grown+block-1)/block {
			rt.Fatalf("got %d; a block of %d tokens adds %d bytes", got, block, grown)
		}
	})
}
