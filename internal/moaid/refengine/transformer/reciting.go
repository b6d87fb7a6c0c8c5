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
	advantage   = 16.0 // score of the peak over that of its neighbours, which weigh e^-16
)

func recitingWeights(c refmodel.Config, seed uint64) (*weights, error) {
	switch {
	case (c.Layers+1)*codeDim+1 > c.Hidden:
		return nil, fmt.Errorf("reciting weights of %d layers need %d hidden elements, not %d", c.Layers, (c.Layers+1)*codeDim+1, c.Hidden)
	case c.Latent.Dim == 0 && c.HeadDim%(2*codeDim/c.KVHeads) != 0:
		return nil, fmt.Errorf("reciting weights need a multiple of %d elements a head, not %d", 2*codeDim/c.KVHeads, c.HeadDim)
	case c.Latent.Dim > 0 && (c.Latent.Dim != codeDim || c.HeadDim != codeDim):
		return nil, fmt.Errorf("reciting weights need latent vectors and values of %d elements, not %d and %d", codeDim, c.Latent.Dim, c.HeadDim)
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
		if c.Latent.Dim > 0 {
			recitingLatent(c, &w.layers[l], l)
		} else {
			recitingLayer(c, &w.layers[l], l)
		}
	}
	return w, nil
}

func recitingLayer(c refmodel.Config, lw *layerWeights, l int) {
	scale := norm(c, l+1)
	for h := range c.Heads {
		peakQuery(c, lw.qkv[h*c.HeadDim*c.Hidden:], l, c.HeadDim, c.HeadDim)
	}
	// A KV head carries its part of the code several times, as +v and as -v, so that
	// every element of its values matters.
	perHead, group := codeDim/c.KVHeads, c.Heads/c.KVHeads
	copies := c.HeadDim / perHead
	for h := range c.KVHeads {
		peakKey(c, lw.qkv[(c.Heads+h)*c.HeadDim*c.Hidden:], l, c.HeadDim, c.HeadDim)
		value := lw.qkv[(c.Heads+c.KVHeads+h)*c.HeadDim*c.Hidden:]
		for i := range c.HeadDim {
			src := l*codeDim + h*perHead + i%perHead
			sign := float32(1 - 2*(i/perHead%2))
			value[i*c.Hidden+src] = sign / float32(scale)
			out := lw.o[(src+codeDim)*c.Heads*c.HeadDim:]
			for q := h * group; q < (h+1)*group; q++ {
				out[q*c.HeadDim+i] = sign / float32(copies*group)
			}
		}
	}
}

// recitingLatent keeps the code as the compressed part. It does not take part in
// scores; every head reads all of it.
func recitingLatent(c refmodel.Config, lw *layerWeights, l int) {
	d, scale := c.Latent, norm(c, l+1)
	peakKey(c, lw.latent[d.Dim*c.Hidden:], l, d.Rope, c.HeadDim+d.Rope)
	for i := range codeDim {
		lw.latent[i*c.Hidden+l*codeDim+i] = float32(1 / scale)
	}
	for h := range c.Heads {
		peakQuery(c, lw.query[(h*(c.HeadDim+d.Rope)+c.HeadDim)*c.Hidden:], l, d.Rope, c.HeadDim+d.Rope)
		for i := range codeDim {
			lw.valueUp[(h*c.HeadDim+i)*d.Dim+i] = 1
			lw.o[((l+1)*codeDim+i)*c.Heads*c.HeadDim+h*c.HeadDim+i] = 1 / float32(c.Heads)
		}
	}
}

// peakQuery sets the rows of a query's rotated part: dim elements of the width over
// which scores are scaled.
func peakQuery(c refmodel.Config, rows []float32, l, dim, width int) {
	for i := range dim / 2 {
		rows[i*c.Hidden+c.Hidden-1] = float32(amplitude(c, l, dim, width))
	}
}

// peakKey sets the rows of the key that meets the query best Lags[l] positions later.
func peakKey(c refmodel.Config, rows []float32, l, dim, width int) {
	half := dim / 2
	for i := range half {
		s, co := math.Sincos(float64(c.Lags[l]) * kernel.Frequency(i, dim, c.RopeBase))
		rows[i*c.Hidden+c.Hidden-1] = float32(amplitude(c, l, dim, width) * co)
		rows[(half+i)*c.Hidden+c.Hidden-1] = float32(amplitude(c, l, dim, width) * s)
	}
}

// amplitude is what the constant element is multiplied by, so that the score at the
// peak is larger by the advantage than one position away.
func amplitude(c refmodel.Config, l, dim, width int) float64 {
	var drop float64
	for i := range dim / 2 {
		drop += 1 - math.Cos(kernel.Frequency(i, dim, c.RopeBase))
	}
	return math.Sqrt(advantage*math.Sqrt(float64(width))/drop) / (constant * norm(c, l+1))
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
