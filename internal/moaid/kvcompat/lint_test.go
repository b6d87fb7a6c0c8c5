package kvcompat_test

import (
	"slices"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
)

const gb = 1_000_000_000

func TestLint(t *testing.T) {
	env := func(name, value string) kvcompat.Setup { return kvcompat.Setup{Env: map[string]string{name: value}} }
	for name, c := range map[string]struct {
		setup kvcompat.Setup
		want  []string
	}{
		"nothing":                 {kvcompat.Setup{}, nil},
		"expandable segments":     {env("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128, expandable_segments:True"), []string{"env.PYTORCH_CUDA_ALLOC_CONF"}},
		"expandable segments HIP": {env("PYTORCH_HIP_ALLOC_CONF", "expandable_segments:true"), []string{"env.PYTORCH_HIP_ALLOC_CONF"}},
		"expandable segments new": {env("PYTORCH_ALLOC_CONF", "expandable_segments:True"), []string{"env.PYTORCH_ALLOC_CONF"}},
		"expandable segments off": {env("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False"), nil},
		"shuffle":                 {env("VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", "1"), []string{"env.VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT"}},
		"no shuffle":              {env("VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", "0"), nil},
		"known keys":              {kvcompat.Setup{TransferKeys: []string{"kv_connector", "kv_role", "kv_connector_extra_config"}}, nil},
		"unknown keys":            {kvcompat.Setup{TransferKeys: []string{"kv_rank", "kv_role", "kv_buffer_size"}}, []string{"kv_transfer_config", "kv_transfer_config"}},
		"R1 on 8 H100":            {kvcompat.Setup{WeightBytes: 689 * gb, Accelerators: 8, AcceleratorBytes: 80 * gb}, []string{"gpus"}},
		"R1 on 8 MI300X":          {kvcompat.Setup{WeightBytes: 689 * gb, Accelerators: 8, AcceleratorBytes: 192 * gb}, nil},
		"R1 on 16 H100":           {kvcompat.Setup{WeightBytes: 689 * gb, Accelerators: 16, AcceleratorBytes: 80 * gb}, nil},
		"less memory allowed":     {kvcompat.Setup{WeightBytes: 70 * gb, Accelerators: 1, AcceleratorBytes: 80 * gb, MemoryShare: 0.8}, []string{"gpus"}},
		"unknown accelerators":    {kvcompat.Setup{WeightBytes: 689 * gb}, nil},
	} {
		var got []string
		for _, r := range kvcompat.Lint(c.setup) {
			got = append(got, r.Attribute)
			if r.Prefill == "" || r.Why == "" || r.Fix == "" || r.String() == "" {
				t.Errorf("%s: an operator cannot act on %+v", name, r)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
