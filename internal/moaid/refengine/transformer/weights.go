package transformer

import (
	"fmt"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// layerWeights are row-major matrices, output x input.
type layerWeights struct {
	normAttn, normFFN []float32

	// Of attention with K and V: (heads + 2 KV heads) * headDim x hidden: q, then k, then v.
	qkv []float32

	// Of latent attention.
	query      []float32 // heads * (headDim + rope) x hidden
	latent     []float32 // dim + rope x hidden
	normLatent []float32
	keyUp      []float32 // heads of dim x headDim: what turns a query to meet latent vectors
	valueUp    []float32 // heads of headDim x dim

	o      []float32   // hidden x heads * headDim
	router []float32   // experts x hidden; nil for one feed-forward part
	gateUp [][]float32 // by expert, 2 * ffn x hidden
	down   [][]float32 // by expert, hidden x ffn
}

type weights struct {
	embed  []float32 // vocab x hidden
	layers []layerWeights
	norm   []float32
	head   []float32 // vocab x hidden
}

func emptyWeights(c refmodel.Config) *weights {
	w := &weights{
		embed:  make([]float32, c.Vocab*c.Hidden),
		head:   make([]float32, c.Vocab*c.Hidden),
		norm:   ones(c.Hidden),
		layers: make([]layerWeights, c.Layers),
	}
	for l := range w.layers {
		lw := &w.layers[l]
		*lw = layerWeights{
			normAttn: ones(c.Hidden),
			normFFN:  ones(c.Hidden),
			o:        make([]float32, c.Hidden*c.Heads*c.HeadDim),
		}
		if d := c.Latent; d.Dim > 0 {
			lw.query = make([]float32, c.Heads*(c.HeadDim+d.Rope)*c.Hidden)
			lw.latent = make([]float32, (d.Dim+d.Rope)*c.Hidden)
			lw.normLatent = ones(d.Dim)
			lw.keyUp = make([]float32, c.Heads*d.Dim*c.HeadDim)
			lw.valueUp = make([]float32, c.Heads*c.HeadDim*d.Dim)
		} else {
			lw.qkv = make([]float32, (c.Heads+2*c.KVHeads)*c.HeadDim*c.Hidden)
		}
		if c.Experts.Count > 0 {
			lw.router = make([]float32, c.Experts.Count*c.Hidden)
		}
		for range max(1, c.Experts.Count) {
			lw.gateUp = append(lw.gateUp, make([]float32, 2*c.FFN*c.Hidden))
			lw.down = append(lw.down, make([]float32, c.Hidden*c.FFN))
		}
	}
	return w
}

func buildWeights(m refmodel.Model, seed uint64) (*weights, error) {
	switch m.Weights {
	case refmodel.Seeded:
		return seededWeights(m.Config, seed), nil
	case refmodel.Reciting:
		return recitingWeights(m.Config, seed)
	}
	return nil, fmt.Errorf("model %s has weights %q, which are unknown", m.Name, m.Weights)
}

func ones(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = 1
	}
	return v
}

// random is splitmix64: its numbers are the same in every release and on every
// architecture, which a fingerprint over a seed relies on.
type random struct{ state uint64 }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// normal is close to a standard normal: the sum of twelve uniform numbers, which
// needs no function whose last bit differs between architectures.
func (r *random) normal() float32 {
	var sum uint64
	for range 3 {
		z := r.next()
		sum += z&0xffff + z>>16&0xffff + z>>32&0xffff + z>>48
	}
	return float32(int64(sum)-12*0x8000) / 0x10000
}
