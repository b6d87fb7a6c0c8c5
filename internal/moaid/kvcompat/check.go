package kvcompat

import (
	"encoding/json"
	"fmt"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// Check compares the cache that prefill writes with the one that decode reads.
// Both fingerprints must be valid.
func Check(prefill, decode kvcache.Fingerprint, o Options) Verdict {
	var rs []Reason
	add := func(attr string, p, d any, why, fix string) {
		a, errA := json.Marshal(p)
		b, errB := json.Marshal(d)
		if errA == nil && errB == nil && string(a) == string(b) {
			return
		}
		rs = append(rs, Reason{Attribute: attr, Prefill: fmt.Sprint(p), Decode: fmt.Sprint(d), Why: why, Fix: fix})
	}
	add("model", prefill.Model, decode.Model, "KV of other weights decodes to other text without any error", "Give both engines the same model and revision")
	add("engine", prefill.Engine, decode.Engine, "engine releases may order pages differently", "Run the same kind and release on both engines")
	add("features", prefill.Features, decode.Features, "the caches mean different things", "Configure both engines alike")
	add("storage", prefill.Storage, decode.Storage, "the pages are different", "Use the same kv_cache on both engines")
	add("groups", prefill.Groups, decode.Groups, "the layers keep different tokens", "Run the same model on both engines")
	add("ranks", prefill.Ranks, decode.Ranks, "heads are split over ranks differently", "Set parallel.tensor to the same value on both engines")
	if len(rs) > 0 {
		return Verdict{Class: Refused, Reasons: rs}
	}
	return Verdict{Class: Exact}
}
