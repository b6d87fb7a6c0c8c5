package transformer

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/kernel"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// Reciting weights. A token is a code of codeDim elements of +-1 in the first
// subspace of the hidden vector; layer l copies the code in subspace l from
// Lags[l] positions back into subspace l+1, and the head reads the last one.
// Queries and keys depend on one constant element only: rotary positions make
// their product peak at exactly the lag, and base 100 makes the peak narrow.
const (
	codeDim     = 32
	codeMinimum = 8    // elements in which two codes differ at least
	constant    = 64.0 // the constant element; large, so that the norm hardly depends on what subspaces hold
	sharpness   = 9.0  // amplitude of queries and keys: neighbours of the peak weigh less than e^-13
)

func recitingWeights(c refmodel.Config, seed uint64) (*weights, error) {
	perHead := codeDim / c.KVHeads
	switch {
	case (c.Layers+1)*codeDim+1 > c.Hidden:
		return nil, fmt.Errorf("reciting weights of %d layers need %d hidden elements, not %d", c.Layers, (c.Layers+1)*codeDim+1, c.Hidden)
	case 2*perHead != c.HeadDim:
		return nil, fmt.Errorf("reciting weights need %d elements a head, not %d", 2*perHead, c.HeadDim)
	case len(c.Lags) != c.Layers:
		return nil, fmt.Errorf("reciting weights need a lag for each of %d layers, not %d", c.Layers, len(c.Lags))
	}
	w := emptyWeights(c)
	codes := tokenCodes(c.Vocab, seed)
	constAt := c.Hidden - 1
	for t, code := range codes {
		copy(w.embed[t*c.Hidden:], code)
		w.embed[t*c.Hidden+constAt] = constant
		head := w.head[t*c.Hidden+c.Layers*codeDim:]
		scale := norm(c, c.Layers+1)
		for i, v := range code {
			head[i] = v / float32(scale)
		}
	}
	for l := range w.layers {
		recitingLayer(c, &w.layers[l], l, constAt, perHead)
	}
	return w, nil
}

func recitingLayer(c refmodel.Config, lw *layerWeights, l, constAt, perHead int) {
	scale := norm(c, l+1)
	amplitude := sharpness / (constant * scale)
	half := c.HeadDim / 2
	row := func(r int) []float32 { return lw.qkv[r*c.Hidden : (r+1)*c.Hidden] }
	for h := range c.Heads {
		for i := range half {
			row(h*c.HeadDim + i)[constAt] = float32(amplitude)
		}
	}
	for h := range c.KVHeads {
		key, value := (c.Heads+h)*c.HeadDim, (c.Heads+c.KVHeads+h)*c.HeadDim
		for i := range half {
			s, co := math.Sincos(float64(c.Lags[l]) * kernel.Frequency(i, c.HeadDim, c.RopeBase))
			row(key + i)[constAt] = float32(amplitude * co)
			row(key + half + i)[constAt] = float32(amplitude * s)
		}
		// A KV head carries its part of the code twice, as +v and as -v, so that
		// every element of its values matters.
		group := c.Heads / c.KVHeads
		for j := range perHead {
			src := l*codeDim + h*perHead + j
			row(value + j)[src] = float32(1 / scale)
			row(value + perHead + j)[src] = float32(-1 / scale)
			out := lw.o[(src+codeDim)*c.Heads*c.HeadDim:]
			for q := h * group; q < (h+1)*group; q++ {
				out[q*c.HeadDim+j] = 0.5 / float32(group)
				out[q*c.HeadDim+perHead+j] = -0.5 / float32(group)
			}
		}
	}
}

// norm is what RMSNorm multiplies by when filled subspaces hold a code.
func norm(c refmodel.Config, filled int) float64 {
	return 1 / math.Sqrt((codeDim*float64(filled)+constant*constant)/float64(c.Hidden))
}

// tokenCodes gives each token a code of +-1 that differs from every other in at
// least codeMinimum elements.
func tokenCodes(vocab int, seed uint64) [][]float32 {
	rng := &random{state: seed ^ 0x6d6f61692d726563}
	words := make([]uint32, 0, vocab)
	for len(words) < vocab {
		w := uint32(rng.next() >> 32)
		far := true
		for _, other := range words {
			far = far && bits.OnesCount32(w^other) >= codeMinimum
		}
		if far {
			words = append(words, w)
		}
	}
	codes := make([][]float32, vocab)
	for t, w := range words {
		codes[t] = make([]float32, codeDim)
		for i := range codes[t] {
			codes[t][i] = float32(int(w>>i&1)*2 - 1)
		}
	}
	return codes
}
