package kvcompat_test

import (
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

func reference(t *testing.T, preset string, change func(*refmodel.Format)) kvcache.Fingerprint {
	t.Helper()
	f, err := refmodel.LookupFormat(preset)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&f)
	}
	m, err := refmodel.Lookup("moai/seeded")
	if err != nil {
		t.Fatal(err)
	}
	fp, err := m.Fingerprint(1, f)
	if err != nil {
		t.Fatal(err)
	}
	return fp
}

// TestFixes: what a refusal says to do, and that it helps.
func TestFixes(t *testing.T) {
	bare := func(f *refmodel.Format) { f.Scales = kvcache.ScaleNone }
	fnuz := func(f *refmodel.Format) { f.DType = kvcache.FP8E4M3FNUZ }
	h100, mi300x, bf16 := reference(t, "h100", nil), reference(t, "mi300x", nil), reference(t, "default", nil)
	shuffled := reference(t, "default", func(f *refmodel.Format) { f.Packing = kvcache.PackingShuffled })
	vllm := func(f kvcache.Fingerprint) kvcache.Fingerprint {
		f.Engine.Family = "vllm"
		return f
	}
	lossy := kvcompat.Options{AllowLossy: true}
	for _, c := range []struct {
		name            string
		prefill, decode kvcache.Fingerprint
		says, not       string
		then            [2]kvcache.Fingerprint // with the fix
		options         kvcompat.Options
	}{
		{"fp8 of two accelerators", mi300x, h100, `kv_cache.dtype = "fp8_e4m3fnuz"`, "", [2]kvcache.Fingerprint{mi300x, reference(t, "h100", fnuz)}, kvcompat.Options{}},
		{"fp8 of two accelerators, as it is", mi300x, h100, "allow_lossy = true", "", [2]kvcache.Fingerprint{mi300x, h100}, lossy},
		{"bf16 to scaled fp8", bf16, h100, `set reference.scales = "none" on the fp8 engine and allow_lossy = true`, "", [2]kvcache.Fingerprint{bf16, reference(t, "h100", bare)}, lossy},
		{"scaled fp8 to bf16", h100, bf16, `set reference.scales = "none"`, "allow_lossy", [2]kvcache.Fingerprint{reference(t, "h100", bare), bf16}, kvcompat.Options{}},
		{"scaled fp8 of vLLM", vllm(h100), vllm(bf16), "checkpoint's scales", "reference.", [2]kvcache.Fingerprint{bf16, bf16}, kvcompat.Options{}},
		{"shuffled", bf16, shuffled, "reference.packing", "VLLM", [2]kvcache.Fingerprint{bf16, bf16}, kvcompat.Options{}},
		{"shuffled of vLLM", vllm(bf16), vllm(shuffled), "VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT=0", "reference.", [2]kvcache.Fingerprint{bf16, bf16}, kvcompat.Options{}},
	} {
		v := kvcompat.Check(c.prefill, c.decode, kvcompat.Options{})
		if err := v.Err(); err == nil || !strings.Contains(err.Error(), c.says) || c.not != "" && strings.Contains(err.Error(), c.not) {
			t.Errorf("%s: %v, want %q and no %q", c.name, err, c.says, c.not)
		}
		if v := kvcompat.Check(c.then[0], c.then[1], c.options); !v.Allowed() {
			t.Errorf("%s: what is said does not help: %v", c.name, v.Err())
		}
	}
}
