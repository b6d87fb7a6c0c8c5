package kvcompat

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache/convert"
)

// Check compares the cache that prefill writes with the one that decode reads.
// Both fingerprints must be valid; others are refused.
func Check(prefill, decode kvcache.Fingerprint, o Options) Verdict {
	c := comparison{p: &prefill, d: &decode, o: o}
	if err := cmp.Or(errOf("prefill", c.p), errOf("decode", c.d)); err != "" {
		c.refuse("fingerprint", "of version "+strconv.Itoa(prefill.Version), "of version "+strconv.Itoa(decode.Version),
			err, "Run releases of the engine's connector and of moaid that belong together")
		return Verdict{Class: Refused, Reasons: c.reasons}
	}
	c.model()
	c.engine()
	c.features()
	c.storage()
	c.groups()
	c.ranks()
	if len(c.reasons) > 0 {
		return Verdict{Class: Refused, Reasons: c.reasons}
	}
	conversion, err := convert.New(prefill, decode)
	if err != nil { // what is refused above says more; this keeps the two from ever disagreeing
		c.refuse("storage", describeStorage(&prefill.Storage), describeStorage(&decode.Storage), err.Error(), "Use the same kv_cache on both engines")
		return Verdict{Class: Refused, Reasons: c.reasons}
	}
	if conversion.Identity() {
		c.steps = slices.DeleteFunc(c.steps, func(s Step) bool { return s.Attribute != attrRelease })
	}
	v := Verdict{Class: Exact, Steps: c.steps}
	for _, s := range v.Steps {
		v.Class = worst(v.Class, s.Class)
	}
	return v
}

func errOf(side string, f *kvcache.Fingerprint) string {
	if err := f.Validate(); err != nil {
		return fmt.Sprintf("the %s engine's describes no cache: %s", side, err)
	}
	return ""
}

func worst(a, b Class) Class {
	order := []Class{Exact, Guarded, Lossy, Refused}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

// comparison collects what differs between two caches.
type comparison struct {
	p, d    *kvcache.Fingerprint
	o       Options
	reasons []Reason
	steps   []Step
}

func (c *comparison) refuse(attribute, prefill, decode, why, fix string) {
	c.reasons = append(c.reasons, Reason{Attribute: attribute, Prefill: cmp.Or(prefill, "none"), Decode: cmp.Or(decode, "none"), Why: why, Fix: fix})
}

// convert adds a step. One that loses values is refused unless it is allowed.
func (c *comparison) convert(attribute, from, to string, class Class, note string) {
	if class == Lossy && !c.o.AllowLossy {
		fix := "Use the same kv_cache.dtype on both engines"
		if attribute == "storage.dtype" && c.p.Storage.DType.FP8() && c.d.Storage.DType.FP8() {
			fix = fmt.Sprintf("Name one encoding on both engines, such as kv_cache.dtype = %q (\"fp8\" is that of each engine's accelerator)", from)
		}
		c.refuse(attribute, from, to, note, fix+", or set allow_lossy = true on the pair to accept that")
		return
	}
	c.steps = append(c.steps, Step{Attribute: attribute, From: from, To: to, Class: class, Note: note})
}

const attrRelease = "engine.release"

func (c *comparison) model() {
	for _, m := range []struct{ attribute, p, d, why, fix string }{
		{"model.config", c.p.Model.Config, c.d.Model.Config, "KV of another model decodes to other text without any error", "Give both engines the same model and revision"},
		{"model.weights", c.p.Model.Weights, c.d.Model.Weights, "KV of other weights decodes to other text without any error", "Give both engines the same model and revision"},
		{"model.tokenizer", c.p.Model.Tokenizer, c.d.Model.Tokenizer, "the engines would count other tokens for the same prompt", "Give both engines the same tokenizer"},
		{"model.chat_template", c.p.Model.ChatTemplate, c.d.Model.ChatTemplate, "the engines would make other prompts of the same messages", "Give both engines the same chat template"},
	} {
		if m.p != m.d {
			c.refuse(m.attribute, short(m.p), short(m.d), m.why, m.fix)
		}
	}
}

// short is the beginning of a hash: enough to tell two apart.
func short(hash string) string {
	if len(hash) > 12 {
		return hash[:12] + "…"
	}
	return hash
}

func (c *comparison) engine() {
	p, d := c.p.Engine, c.d.Engine
	if p.Family != d.Family {
		c.refuse("engine.family", p.Family, d.Family, "engines of other families compute other KV for the same prompt", "Run the same kind of engine on both sides")
	} else if publicRelease(p.Release) != publicRelease(d.Release) {
		if c.o.AllowReleases {
			c.convert(attrRelease, p.Release, d.Release, Exact, "nothing is converted: that the releases agree is the operator's word (allow_releases)")
		} else {
			c.refuse(attrRelease, p.Release, d.Release, "releases may order pages or compute KV differently", "Run the same release on both engines, or set allow_releases = true on the pair")
		}
	}
	const bad = "ROCM_ATTN"
	if p.Attention == bad || d.Attention == bad {
		c.refuse("engine.attention", p.Attention, d.Attention, bad+" does not support KV connectors", "Set the attention backend to ROCM_AITER_UNIFIED_ATTN or TRITON_ATTN")
	}
}

// publicRelease is a release without its local version, which names the build:
// "0.33.0+rocm700" and "0.33.0+cu129" are builds of one release.
func publicRelease(s string) string {
	release, _, _ := strings.Cut(s, "+")
	return release
}

// gates are features with which no KV can cross, whoever has them.
var gates = []struct{ feature, why, fix string }{
	{"encoder_decoder", "what the decoder reads of the encoder is not in the KV pages", "Serve encoder-decoder models from one engine"},
	{"state_space", "the state of state-space layers is not in the KV pages", "Serve models with state-space layers from one engine"},
	{"expandable_segments", "memory of expandable segments moves, and transfers of it stall", "Remove expandable_segments from PYTORCH_CUDA_ALLOC_CONF and PYTORCH_HIP_ALLOC_CONF"},
}

func (c *comparison) features() {
	gated := map[string]bool{}
	for _, g := range gates {
		gated[g.feature] = true
		p, d := slices.Contains(c.p.Features, g.feature), slices.Contains(c.d.Features, g.feature)
		if p || d {
			c.refuse("features", with(p, g.feature), with(d, g.feature), g.why, g.fix)
		}
	}
	only := func(a, b []string) string {
		rest := slices.DeleteFunc(slices.Clone(a), func(s string) bool { return gated[s] || slices.Contains(b, s) })
		return strings.Join(rest, ", ")
	}
	if p, d := only(c.p.Features, c.d.Features), only(c.d.Features, c.p.Features); p != "" || d != "" {
		c.refuse("features", "with "+cmp.Or(p, "none"), "with "+cmp.Or(d, "none"), "a cache means something else with another feature, such as another speculative method", "Configure both engines alike")
	}
}

func with(has bool, feature string) string {
	if has {
		return "with " + feature
	}
	return "without " + feature
}
