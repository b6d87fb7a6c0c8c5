package refmodel

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// Factors are what a checkpoint says elements of FP8 are multiplied by when they are
// read: by layer, part and head. There is one factor for all heads, or one each.
type Factors [][2][]float32

// factorUnit is the least factor. Keys and values of the models are below 14, so that
// no element is beyond 400 of the 448 that fp8_e4m3fn has, nor, with doubled factors,
// beyond 200 of the 240 that fp8_e4m3fnuz has.
const factorUnit = 0.035

// Factors gives the factors that belong to the weights of seed. They are no powers of
// two, and less than twice as large as the least. It is empty for kind none.
func (m Model) Factors(seed uint64, kind kvcache.ScaleKind) Factors {
	if kind == kvcache.ScaleNone {
		return nil
	}
	weights := m.Identity(seed).Weights
	out := make(Factors, m.Config.Layers)
	for _, g := range m.Config.Groups() {
		n := 1
		if kind == kvcache.ScaleHead {
			n = g.Heads
		}
		for _, l := range g.Layers {
			for part, dim := range []int{g.KeyDim, g.ValueDim} {
				if dim == 0 {
					continue
				}
				for head := range n {
					h := sha256.Sum256([]byte(weights + " " + strconv.Itoa(l) + " " + strconv.Itoa(part) + " " + strconv.Itoa(head)))
					out[l][part] = append(out[l][part], factorUnit*(1+float32(h[0])/256))
				}
			}
		}
	}
	return out
}

// Of is the factor of a layer's part and head, which counts over the whole model.
func (f Factors) Of(layer int, part kvcache.Part, head int) float32 {
	if f == nil {
		return 1
	}
	v := f[layer][part]
	return v[min(head, len(v)-1)]
}

// Hash identifies the factors as [kvcache.Scales] says.
func (f Factors) Hash() string {
	var b []byte
	for _, layer := range f {
		for _, part := range layer {
			for _, x := range part {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
			}
		}
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}
