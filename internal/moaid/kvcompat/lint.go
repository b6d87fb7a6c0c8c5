package kvcompat

import (
	"fmt"
	"slices"
	"strings"
)

// Setup is what an engine is about to be started with, as far as it bears on
// KV transfers and is in no fingerprint.
type Setup struct {
	Env map[string]string
	// TransferKeys are the keys of vLLM's kv_transfer_config; none for other engines.
	TransferKeys []string
	// WeightBytes is the size of the model's weights as they are loaded, 0 if unknown.
	WeightBytes int64
	// Accelerators is how many the engine has, AcceleratorBytes the memory of each; 0
	// if unknown.
	Accelerators     int
	AcceleratorBytes int64
	// MemoryShare is how much of that memory the engine may use; 0 means [MemoryShare].
	MemoryShare float64
}

// MemoryShare is the part of an accelerator's memory that vLLM uses if it is not told.
const MemoryShare = 0.92

// transferKeys are the keys that vLLM knows; it refuses to start with others.
var transferKeys = []string{
	"enable_permute_local_kv", "engine_id", "kv_buffer_device", "kv_connector", "kv_connector_extra_config",
	"kv_connector_module_path", "kv_load_failure_policy", "kv_port", "kv_role",
}

// Lint gives the ways in which an engine's configuration would keep it from
// starting or its KV from crossing. Attributes name an environment variable as
// env.NAME.
func Lint(s Setup) []Reason {
	var out []Reason
	add := func(attribute, value, why, fix string) {
		out = append(out, Reason{Attribute: attribute, Prefill: value, Why: why, Fix: fix})
	}
	for _, name := range []string{"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"} {
		if v := s.Env[name]; expandable(v) {
			add("env."+name, v, "memory of expandable segments moves, and transfers of it stall", "Remove expandable_segments from "+name)
		}
	}
	const shuffle = "VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT"
	if v := s.Env[shuffle]; truth(v) {
		add("env."+shuffle, v, "K and V are stored in a layout that no other engine reads", "Set "+shuffle+"=0, or leave it out")
	}
	for _, key := range slices.Sorted(slices.Values(s.TransferKeys)) {
		if !slices.Contains(transferKeys, key) {
			add("kv_transfer_config", key, "vLLM knows no such key and would not start", "Remove the key; options of a connector go into kv_connector_extra_config")
		}
	}
	share := s.MemoryShare
	if share == 0 {
		share = MemoryShare
	}
	if have := float64(s.AcceleratorBytes) * float64(s.Accelerators) * share; have > 0 && float64(s.WeightBytes) >= have {
		add("gpus", fmt.Sprintf("%d of %s", s.Accelerators, gigabytes(float64(s.AcceleratorBytes))),
			fmt.Sprintf("the model's weights take %s, and the engine may use %s", gigabytes(float64(s.WeightBytes)), gigabytes(have)),
			"Use more or larger accelerators, or a smaller model")
	}
	return out
}

// expandable reports whether PyTorch's allocator options turn expandable segments on.
func expandable(options string) bool {
	for _, o := range strings.Split(options, ",") {
		if key, value, _ := strings.Cut(strings.TrimSpace(o), ":"); strings.TrimSpace(key) == "expandable_segments" && truth(value) {
			return true
		}
	}
	return false
}

func truth(v string) bool {
	switch strings.ToLower(strings.TrimSpace(v)) {
	case "1", "true", "yes", "on":
		return true
	}
	return false
}

func gigabytes(n float64) string { return fmt.Sprintf("%.0f GB", n/1e9) }
