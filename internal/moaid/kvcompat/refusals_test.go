package kvcompat_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat/cases"
)

// refusals is what must not happen between engines of unlike vendors, each with
// the test that it is refused: a row of the table of verdicts, a row of the table
// of TestLint, or a text in another package's test.
var refusals = []struct {
	what    string
	verdict []string // names of cases that are refused
	setup   *kvcompat.Setup
	file    string // of another test
	text    string // in file
}{
	{what: "fp8 across vendors as raw bytes", verdict: []string{"raw fp8 across vendors, one with scales", "factors of another checkpoint", "fnuz to fn without scales"}},
	{what: "fp8 to another dtype", verdict: []string{"scaled fp8 to bf16", "bf16 to scaled fp8", "bf16 to fp8"}},
	{what: "fp8_ds_mla, nvfp4 and other opaque pages", verdict: []string{"fp8_ds_mla to fp8", "fp8_ds_mla in other blocks", "nvfp4 to bf16", "opaque packing to packed"}},
	{what: "more than one pipeline stage", verdict: []string{"pipeline on prefill", "pipeline on both"}},
	{what: "encoder-decoder models", verdict: []string{"encoder-decoder model"}},
	{what: "state-space layers", verdict: []string{"state-space layers"}},
	{what: "ROCM_ATTN", verdict: []string{"ROCM_ATTN on prefill", "ROCM_ATTN on decode"}},
	{what: "shuffled layout, as found", verdict: []string{"shuffled on prefill", "shuffled on both"}},
	{what: "shuffled layout, as configured", setup: &kvcompat.Setup{Env: map[string]string{"VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT": "1"}}},
	{what: "expandable segments, as found", verdict: []string{"expandable segments on decode", "expandable segments on both"}},
	{what: "expandable segments, as configured", setup: &kvcompat.Setup{Env: map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}},
	{what: "unknown keys of the transfer configuration", setup: &kvcompat.Setup{TransferKeys: []string{"kv_parallel_size"}}},
	{what: "DeepSeek-R1 FP8 on 8 H100 of 80 GB", setup: &kvcompat.Setup{WeightBytes: 689 * gb, Accelerators: 8, AcceleratorBytes: 80 * gb}},
	{what: "several prompts in a request", file: "../gateway/gateway_test.go", text: `"prompt":["a","b"]}` + "`" + `, 400, "multiple_prompts"`},
	{what: "engine releases that differ", verdict: []string{"another release"}},
	{what: "models that differ", verdict: []string{"other config", "other weights", "other tokenizer", "no chat template"}},
	{what: "speculative configurations that differ", verdict: []string{"speculation on one side", "two speculative methods"}},
	{what: "hybrid cache manager off on decode only", verdict: []string{"window on prefill only"}},
	{what: "scales computed while running", verdict: []string{"factors by token"}},
}

func TestEveryRefusalIsTested(t *testing.T) {
	all := map[string]cases.Case{}
	for _, c := range cases.All() {
		all[c.Name] = c
	}
	for _, r := range refusals {
		for _, name := range r.verdict {
			if c, ok := all[name]; !ok || c.Class != kvcompat.Refused {
				t.Errorf("%s: the case %q is not refused", r.what, name)
			}
		}
		if r.setup != nil && len(kvcompat.Lint(*r.setup)) == 0 {
			t.Errorf("%s: the configuration passes", r.what)
		}
		if r.file != "" {
			b, err := os.ReadFile(r.file)
			if err != nil || !strings.Contains(string(b), r.text) {
				t.Errorf("%s: %s does not test it any more (%v)", r.what, r.file, err)
			}
		}
		if len(r.verdict) == 0 && r.setup == nil && r.file == "" {
			t.Errorf("%s has no test", r.what)
		}
	}
}

// TestRefusalsAreListed: no case is refused for an attribute that the list above
// does not speak of.
func TestRefusalsAreListed(t *testing.T) {
	listed := []string{}
	for _, r := range refusals {
		for _, c := range cases.All() {
			if slices.Contains(r.verdict, c.Name) {
				listed = append(listed, c.Attributes...)
			}
		}
	}
	// Impossible rather than forbidden: the caches have not the same content.
	listed = append(listed, "groups", "ranks.tensor", "engine.family")
	for _, c := range cases.All() {
		for _, a := range c.Attributes {
			if c.Class == kvcompat.Refused && !slices.Contains(listed, a) {
				t.Errorf("%s is refused for %s, which is not listed", c.Name, a)
			}
		}
	}
}
