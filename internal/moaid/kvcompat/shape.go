package kvcompat

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// pairLayers gives the groups, on both sides, of each layer that both have.
func pairLayers(p, d *kvcache.Fingerprint) map[int][2]int {
	theirs := map[int]int{}
	for j := range d.Groups {
		for _, l := range d.Groups[j].Layers {
			theirs[l] = j
		}
	}
	out := map[int][2]int{}
	for i := range p.Groups {
		for _, l := range p.Groups[i].Layers {
			if j, ok := theirs[l]; ok {
				out[l] = [2]int{i, j}
			}
		}
	}
	return out
}

func layers(f *kvcache.Fingerprint) []int {
	var out []int
	for i := range f.Groups {
		out = append(out, f.Groups[i].Layers...)
	}
	slices.Sort(out)
	return out
}

// groups compares what the layers keep, layer by layer.
func (c *comparison) groups() {
	if reflect.DeepEqual(c.p.Groups, c.d.Groups) {
		return
	}
	p, d := describeGroups(c.p), describeGroups(c.d)
	const sameModel = "Run the same model on both engines"
	if !slices.Equal(layers(c.p), layers(c.d)) {
		c.refuse("groups", p, d, "the engines have other layers", sameModel)
		return
	}
	pairs := pairLayers(c.p, c.d)
	met := map[string]bool{} // reasons given
	refuse := func(layer int, why, fix string) {
		if !met[why] {
			met[why] = true
			c.refuse("groups", p, d, fmt.Sprintf("%s, as of layer %d", why, layer), fix)
		}
	}
	trimmed := 0
	for _, l := range layers(c.p) {
		a, b := &c.p.Groups[pairs[l][0]], &c.d.Groups[pairs[l][1]]
		sliding := [2]bool{a.Kind == kvcache.GroupSliding, b.Kind == kvcache.GroupSliding}
		switch {
		case (a.Kind == kvcache.GroupLatent) != (b.Kind == kvcache.GroupLatent):
			refuse(l, "one engine keeps latent vectors where the other keeps K and V", "Use multi-head latent attention on both engines, or on none (VLLM_MLA_DISABLE)")
		case a.Heads != b.Heads || a.KeyDim != b.KeyDim || a.ValueDim != b.ValueDim:
			refuse(l, "layers have other heads or dimensions", sameModel)
		case sliding[0] && !sliding[1]:
			refuse(l, "the decode engine keeps every token where the prefill engine has only the last ones", "Turn the hybrid KV cache manager on for the decode engine too, or off for both")
		case sliding[0] && a.Window != b.Window:
			refuse(l, "windows differ", sameModel)
		case !sliding[0] && sliding[1]:
			trimmed++
		}
	}
	note := "layers are grouped differently"
	if trimmed > 0 {
		note = fmt.Sprintf("of %d layers only the last tokens are sent: the decode engine keeps no others", trimmed)
	}
	c.convert("groups", p, d, Exact, note)
}

// describeGroups is a list such as "18 full, 18 sliding 128 layers of 8 heads of 64+64".
func describeGroups(f *kvcache.Fingerprint) string {
	parts := make([]string, len(f.Groups))
	for i := range f.Groups {
		g := &f.Groups[i]
		kind := string(g.Kind)
		if g.Kind == kvcache.GroupSliding {
			kind += " " + strconv.Itoa(g.Window)
		}
		if g.Kind == kvcache.GroupLatent {
			parts[i] = fmt.Sprintf("%d %s of %d", len(g.Layers), kind, g.KeyDim)
			continue
		}
		parts[i] = fmt.Sprintf("%d %s of %d×(%d+%d)", len(g.Layers), kind, g.Heads, g.KeyDim, g.ValueDim)
	}
	return strings.Join(parts, ", ")
}

// ranks compares how heads are divided.
func (c *comparison) ranks() {
	p, d := c.p.Ranks, c.d.Ranks
	if p.Pipeline != 1 || d.Pipeline != 1 {
		c.refuse("ranks.pipeline", strconv.Itoa(p.Pipeline), strconv.Itoa(d.Pipeline), "the layers of other pipeline stages would be missing", "Set pipeline parallelism to 1 and use tensor parallelism")
	}
	if p.Tensor != d.Tensor {
		c.convert("ranks.tensor", strconv.Itoa(p.Tensor), strconv.Itoa(d.Tensor), Exact, "heads are divided over other ranks; what ranks have alike travels once")
	}
}
