package transformer

import (
	"math"
	"slices"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/kernel"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// naive is a model written down from its definition: in float64, without a cache, every
// key and value of every head made from the hidden state, every expert computed.
type naive struct {
	c refmodel.Config
	w *weights
}

func (m naive) logits(tokens []int) []float64 {
	c := m.c
	x := make([][]float64, len(tokens))
	for t, id := range tokens {
		x[t] = apply(m.w.embed[id*c.Hidden:(id+1)*c.Hidden], []float64{1}, c.Hidden)
	}
	for l := range c.Layers {
		lw := &m.w.layers[l]
		var normed [][]float64
		for _, v := range x {
			normed = append(normed, unit(v))
		}
		for t, attn := range m.attention(l, normed) {
			add(x[t], apply(lw.o, attn, c.Hidden), 1)
			add(x[t], m.feedForward(lw, unit(x[t])), 1)
		}
	}
	return apply(m.w.head, unit(x[len(x)-1]), c.Vocab)
}

func (m naive) attention(l int, normed [][]float64) [][]float64 {
	c, lw := m.c, &m.w.layers[l]
	out := make([][]float64, len(normed))
	for h := range c.Heads {
		var queries, keys, values [][]float64
		for pos, x := range normed {
			var q, k, v []float64
			if d := c.Latent; d.Dim > 0 {
				q = apply(lw.query, x, c.Heads*(c.HeadDim+d.Rope))[h*(c.HeadDim+d.Rope):][:c.HeadDim+d.Rope]
				rotate(q[c.HeadDim:], pos, c.RopeBase)
				kept := apply(lw.latent, x, d.Dim+d.Rope)
				rotate(kept[d.Dim:], pos, c.RopeBase)
				vector := unit(kept[:d.Dim])
				k = make([]float64, c.HeadDim)
				for i, row := range vector { // keyUp maps the other way
					for j := range k {
						k[j] += row * float64(lw.keyUp[(h*d.Dim+i)*c.HeadDim+j])
					}
				}
				k = append(k, kept[d.Dim:]...)
				v = apply(lw.valueUp[h*c.HeadDim*d.Dim:], vector, c.HeadDim)
			} else {
				all, kv := apply(lw.qkv, x, (c.Heads+2*c.KVHeads)*c.HeadDim), h/(c.Heads/c.KVHeads)
				q, k, v = all[h*c.HeadDim:][:c.HeadDim], all[(c.Heads+kv)*c.HeadDim:][:c.HeadDim], all[(c.Heads+c.KVHeads+kv)*c.HeadDim:][:c.HeadDim]
				rotate(q, pos, c.RopeBase)
				rotate(k, pos, c.RopeBase)
			}
			queries, keys, values = append(queries, q), append(keys, k), append(values, v)
			first := firstSeen(c.Windows[l], pos)
			var scores []float64
			for j := first; j <= pos; j++ {
				scores = append(scores, dot(queries[pos], keys[j])/math.Sqrt(float64(len(q))))
			}
			mean := make([]float64, c.HeadDim)
			for j, p := range softmax(scores) {
				add(mean, values[first+j], p)
			}
			out[pos] = append(out[pos], mean...)
		}
	}
	return out
}

func (m naive) feedForward(lw *layerWeights, x []float64) []float64 {
	c := m.c
	expert := func(e int) []float64 {
		both := apply(lw.gateUp[e], x, 2*c.FFN)
		inner := make([]float64, c.FFN)
		for i := range inner {
			inner[i] = both[i] / (1 + math.Exp(-both[i])) * both[c.FFN+i]
		}
		return apply(lw.down[e], inner, c.Hidden)
	}
	if c.Experts.Count == 0 {
		return expert(0)
	}
	// The router's probabilities of the chosen, divided by their sum.
	p := softmax(apply(lw.router, x, c.Experts.Count))
	sorted := slices.Sorted(slices.Values(p))
	least, sum := sorted[len(sorted)-c.Experts.Top], 0.0
	out := make([]float64, c.Hidden)
	for e, v := range p {
		if v >= least {
			add(out, expert(e), v)
			sum += v
		}
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

func apply(w []float32, x []float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		for j, v := range x {
			out[i] += float64(w[i*len(x)+j]) * v
		}
	}
	return out
}

func unit(x []float64) []float64 {
	out := make([]float64, len(x))
	add(out, x, 1/math.Sqrt(dot(x, x)/float64(len(x))+1e-6))
	return out
}

func add(x, y []float64, factor float64) {
	for i := range x {
		x[i] += factor * y[i]
	}
}

func dot(a, b []float64) (s float64) {
	for i, v := range a {
		s += v * b[i]
	}
	return s
}

func softmax(x []float64) []float64 {
	out, top, sum := make([]float64, len(x)), slices.Max(x), 0.0
	for i, v := range x {
		out[i] = math.Exp(v - top)
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

func rotate(v []float64, pos int, base float64) {
	half := len(v) / 2
	for i := range half {
		s, c := math.Sincos(float64(pos) * kernel.Frequency(i, len(v), base))
		v[i], v[i+half] = v[i]*c-v[i+half]*s, v[i]*s+v[i+half]*c
	}
}

// With exact elements the engine computes what the definition says: latent attention
// from the compressed vectors, mixtures from the chosen experts only.
func TestModelsAreWhatTheirDefinitionSays(t *testing.T) {
	mixture := small
	mixture.Name = "small-mixture"
	mixture.Config.Experts = refmodel.Experts{Count: 4, Top: 2}
	both := smallLatent()
	both.Name = "small-latent-mixture"
	both.Config.Experts = refmodel.Experts{Count: 3, Top: 1}
	for _, model := range []refmodel.Model{small, mixture, smallLatent(), both} {
		w, err := buildWeights(model, 5)
		if err != nil {
			t.Fatal(err)
		}
		p := prompt(11, 60)
		want := naive{model.Config, w}.logits(p)
		f := formatWith(16)
		f.DType, f.Tensor = kvcache.FP32, 2
		fp, err := model.Fingerprint(5, f)
		if err != nil {
			t.Fatal(err)
		}
		tab, blocks := tablesFor(&fp, len(p))
		steps := newRanks(t, model, f, 5, blocks).logits(p, tab, 3)
		worst, largest := 0.0, 0.0
		for i, got := range steps[len(steps)-1] {
			worst, largest = max(worst, math.Abs(float64(got)-want[i])), max(largest, math.Abs(want[i]))
		}
		t.Logf("%s: logits up to %.2f, difference up to %.2g", model.Name, largest, worst)
		if worst > 2e-4 || largest < 1 {
			t.Errorf("%s: logits up to %v differ by up to %v", model.Name, largest, worst)
		}
	}
}

func TestTheFirstOfEqualExpertsIsChosen(t *testing.T) {
	picks := make([]pick, 2)
	choose(picks, []float32{1, 3, 3, 3})
	if picks[0] != (pick{1, 0.5}) || picks[1] != (pick{2, 0.5}) {
		t.Errorf("chose %+v", picks)
	}
	choose(picks, []float32{0, 0, 0, 2})
	if picks[0].expert != 3 || picks[1].expert != 0 || picks[0].weight <= picks[1].weight {
		t.Errorf("chose %+v", picks)
	}
}
