package transformer

import (
	"math"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// Gains of seeded weights. Queries and keys are sharp enough that a long context
// does not average out, and attention is strong beside the embedding, so that
// greedy output depends on what the cache holds; scores are flat enough that
// every slot still carries weight above float32's resolution.
const (
	gainEmbed     = 0.5
	gainQueryKey  = 1.3
	gainValue     = 1
	gainAttention = 3
	gainFFN       = 1
)

func seededWeights(c refmodel.Config, seed uint64) *weights {
	w := emptyWeights(c)
	rng := &random{state: seed ^ 0x6d6f61692d736565}
	fill := func(v []float32, std float64) {
		for i := range v {
			v[i] = rng.normal() * float32(std)
		}
	}
	in := 1 / math.Sqrt(float64(c.Hidden))
	fill(w.embed, gainEmbed)
	for l := range w.layers {
		lw := &w.layers[l]
		if d := c.Latent; d.Dim > 0 {
			fill(lw.query, gainQueryKey*in)
			fill(lw.latent, gainQueryKey*in)
			fill(lw.keyUp, gainQueryKey/math.Sqrt(float64(d.Dim)))
			fill(lw.valueUp, gainValue/math.Sqrt(float64(d.Dim)))
		} else {
			queryKey := (c.Heads + c.KVHeads) * c.HeadDim * c.Hidden
			fill(lw.qkv[:queryKey], gainQueryKey*in)
			fill(lw.qkv[queryKey:], gainValue*in)
		}
		fill(lw.o, gainAttention/math.Sqrt(float64(c.Heads*c.HeadDim)))
		fill(lw.router, in)
		for e := range lw.gateUp {
			fill(lw.gateUp[e], in)
			fill(lw.down[e], gainFFN/math.Sqrt(float64(c.FFN)))
		}
	}
	fill(w.head, in)
	return w
}
