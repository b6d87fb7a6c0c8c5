package engines

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

func ptr[T any](v T) *T { return &v }

func spec(change func(*Spec)) Spec {
	s := Spec{Name: "prefill-0", Kind: "reference", Role: RolePrefill, Model: Model{ID: "moai/seeded"}}
	if change != nil {
		change(&s)
	}
	return reference{}.Defaults(s)
}

func TestDefaultsPassTheCheck(t *testing.T) {
	t.Parallel()
	for _, model := range refmodel.Names() {
		s := spec(func(s *Spec) { s.Model.ID = model })
		if ps := (reference{}).Check(s); len(ps) > 0 {
			t.Errorf("%s: %v", model, ps)
		}
		f, err := reference{}.Fingerprint(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Validate(); err != nil {
			t.Errorf("%s: %v", model, err)
		}
	}
}

func TestProblemsNameTheAttribute(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		attribute, says string
		change          func(*Spec)
	}{
		{"model.id", `"moai/reciting"`, func(s *Spec) { s.Model.ID = "openai/gpt-oss-120b" }},
		{"model.path", "built in", func(s *Spec) { s.Model.Path = "/models/x" }},
		{"model.revision", "built in", func(s *Spec) { s.Model.Revision = "main" }},
		{"model.config", "built in", func(s *Spec) { s.Model.Config = "{}" }},
		{"role", `"decode"`, func(s *Spec) { s.Role = "auto" }},
		{"kv_connector", `"none"`, func(s *Spec) { s.Connector = "nixl" }},
		{"kv_connector", "gives or takes KV", func(s *Spec) { s.Connector = ConnectorNone }},
		{"runtime.kind", `"existing"`, func(s *Spec) { s.Runtime.Kind = "container" }},
		{"runtime.path", "absolute", func(s *Spec) { s.Runtime.Path = "moaid-lab" }},
		{"preset", `"mi300x"`, func(s *Spec) { s.Preset = "b200" }},
		{"parallel.tensor", "1, 2, 4 or 8", func(s *Spec) { s.Parallel.Tensor = 3 }},
		{"parallel.tensor", "has 4 query heads", func(s *Spec) { s.Parallel.Tensor = 8 }},
		{"parallel.data", "1 to 4", func(s *Spec) { s.Parallel.Data = 5 }},
		{"parallel.expert", "only 1", func(s *Spec) { s.Parallel.Expert = 2 }},
		{"gpus", "1 accelerators, and the engine has 4 ranks", func(s *Spec) { s.Parallel.Tensor, s.Parallel.Data, s.GPUs = 2, 2, []int{0} }},
		{"kv_cache.dtype", `"fp8_e4m3fnuz"`, func(s *Spec) { s.KVCache.DType = "fp8_e5m2" }},
		{"kv_cache.layout", `NHD is an old name. Use "LBNHC"`, func(s *Spec) { s.KVCache.Layout = "NHD" }},
		{"kv_cache.block_size", "16, 32, 64, 128 or 256", func(s *Spec) { s.KVCache.BlockSize = 48 }},
		{"reference.packing", `"x_packed"`, func(s *Spec) { s.Reference.Packing = "opaque:x" }},
		{"reference.packing", "and kv_cache.layout LBNHC all heads of a token together; use reference.packing packed or apart, or kv_cache.layout LBHNC", func(s *Spec) { s.Reference.Packing, s.KVCache.Layout = "x_packed", "LBNHC" }},
		{"reference.kernel_block_size", "is 4: reference.packing shuffled", func(s *Spec) { s.Reference.Packing, s.Reference.KernelBlockSize = "shuffled", 4 }},
		{"reference.scales", `"head"`, func(s *Spec) { s.Reference.Scales = "token" }},
		{"reference.scales", "or an fp8 dtype", func(s *Spec) { s.Reference.Scales = "tensor" }},
		{"reference.kernel_block_size", "does not divide kv_cache.block_size 64", func(s *Spec) { s.Reference.KernelBlockSize = 48 }},
		{"reference.padding", "multiple of 16", func(s *Spec) { s.Reference.Padding = 8 }},
		{"on_transfer_failure", `"fail"`, func(s *Spec) { s.OnTransferFailure = "retry" }},
		{"staging.memory", "16 MiB", func(s *Spec) { s.StagingBytes = 100 }},
		{"staging.memory", "128 MiB: each of the engine's 8 ranks", func(s *Spec) { s.Parallel.Tensor, s.Parallel.Data, s.StagingBytes = 4, 2, 127<<20 }},
		{"ingest.max_in_flight", "staging.memory", func(s *Spec) { s.MaxInFlight = 1 << 40 }},
		{"extra_args.1", "model.id", func(s *Spec) { s.ExtraArgs = []string{"--max-seqs=1", "--model=y"} }},
		{"extra_args.0", "kv_cache.dtype", func(s *Spec) { s.ExtraArgs = []string{"--kv-dtype=fp16"} }},
		{"extra_args.0", "reference.kernel_block_size", func(s *Spec) { s.ExtraArgs = []string{"-kernel-block", "16"} }},
		{"extra_args.0", "parallel.data", func(s *Spec) { s.ExtraArgs = []string{"--data-parallel=2"} }},
		{"extra_args.0", "cannot be changed", func(s *Spec) { s.ExtraArgs = []string{"-http-socket"} }},
		{"extra_args.1", `no argument "--max-seq"`, func(s *Spec) { s.ExtraArgs = []string{"--grace=5s", "--max-seq", "8"} }},
		{"extra_args.2", `no argument "x"`, func(s *Spec) { s.ExtraArgs = []string{"--max-seqs", "8", "x"} }},
		{"extra_args.0", `needs a number, not ""`, func(s *Spec) { s.ExtraArgs = []string{"-kv-blocks"} }},
		{"extra_args.0", `needs a duration such as "30s", not "5"`, func(s *Spec) { s.ExtraArgs = []string{"--grace=5"} }},
		{"extra_args.0", "line break", func(s *Spec) { s.ExtraArgs = []string{"a\nb"} }},
		{"env", `"1X" is no name`, func(s *Spec) { s.Env = map[string]string{"1X": "y"} }},
		{"env.X", "NUL", func(s *Spec) { s.Env = map[string]string{"X": "a\x00"} }},
		{"env.NOTIFY_SOCKET", "unit", func(s *Spec) { s.Env = map[string]string{"NOTIFY_SOCKET": "/x"} }},
		{"env.PYTORCH_CUDA_ALLOC_CONF", "Remove expandable_segments", func(s *Spec) {
			s.Env = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
		}},
		{"env.VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", "=0", func(s *Spec) {
			s.Env = map[string]string{"VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT": "1"}
		}},
	} {
		ps := reference{}.Check(spec(c.change))
		i := slices.IndexFunc(ps, func(p Problem) bool { return p.Attribute == c.attribute && strings.Contains(p.Detail, c.says) })
		if i < 0 || len(ps) != 1 {
			t.Errorf("%s: got %v, want one that says %q", c.attribute, ps, c.says)
		}
	}
}

// What keeps KV from crossing is nobody's concern where none crosses.
func TestEnvOfAnEngineWithoutConnector(t *testing.T) {
	t.Parallel()
	s := spec(func(s *Spec) {
		s.Role, s.Connector = RoleBoth, ConnectorNone
		s.Env = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "GOGC": "50"}
	})
	if ps := (reference{}).Check(s); len(ps) > 0 {
		t.Errorf("%v", ps)
	}
}

func TestLookupNamesTheKinds(t *testing.T) {
	t.Parallel()
	_, err := Lookup("vllm")
	if err == nil || !strings.Contains(err.Error(), `"reference"`) || !strings.Contains(err.Error(), `"vllm"`) {
		t.Errorf("got %v", err)
	}
}

// Every flag that Launch sets is refused in extra_args.
func TestOwnedFlagsAreThoseOfLaunch(t *testing.T) {
	t.Parallel()
	s := spec(func(s *Spec) {
		s.Reference = Reference{WeightsSeed: ptr(uint64(2)), ClaimFingerprintOf: ptr(uint64(1))}
	})
	set := map[string]bool{}
	for _, a := range (reference{}).Launch(s, PlaceFor("n", s.Name)).Args {
		if name, ok := strings.CutPrefix(a, "--"); ok {
			name, _, _ = strings.Cut(name, "=")
			set[name] = true
			if _, owned := referenceFlags[name]; !owned {
				t.Errorf("--%s is not owned", name)
			}
		}
	}
	if len(set) < 18 {
		t.Errorf("Launch sets only %v", set)
	}
}

func TestObservationReachesEveryPartOfTheCache(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := spec(func(s *Spec) {
			s.Model.ID = rapid.SampledFrom(refmodel.Names()).Draw(t, "model")
			s.KVCache.BlockSize = rapid.SampledFrom(referenceBlockSizes).Draw(t, "block_size")
		})
		m, err := refmodel.Lookup(s.Model.ID)
		if err != nil {
			t.Fatal(err)
		}
		n := reference{}.Observation(s).PromptTokens
		if n <= m.Lag() || n < 4*s.KVCache.BlockSize || n > m.Config.MaxPosition {
			t.Fatalf("%d tokens with lag %d and blocks of %d", n, m.Lag(), s.KVCache.BlockSize)
		}
		for _, w := range m.Config.Windows {
			if n <= w {
				t.Fatalf("%d tokens stay inside a window of %d", n, w)
			}
		}
	})
}

// The plan refuses every argument that the program does not have, and no other.
func TestFlagsAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	has := map[string]bool{}
	flags := regexp.MustCompile(`f\.(?:String|Int|Bool|Duration)\("([a-z0-9-]+)"|Var\(&[^,]+, "([a-z0-9-]+)"|range \[\]string\{"([a-z-]+)", "([a-z-]+)"\}`)
	for _, name := range []string{"engine.go", "format.go"} {
		b, err := os.ReadFile(filepath.Join("..", "moaid", "cmd", "moaid-lab", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range flags.FindAllStringSubmatch(string(b), -1) {
			for _, n := range m[1:] {
				has[n] = n != ""
			}
		}
	}
	delete(has, "")
	known := map[string]bool{}
	for n := range referenceFlags {
		known[n] = true
	}
	for n := range freeFlags {
		known[n] = true
	}
	if !maps.Equal(has, known) {
		t.Errorf("the program has %v, the kind knows %v", slices.Sorted(maps.Keys(has)), slices.Sorted(maps.Keys(known)))
	}
}
