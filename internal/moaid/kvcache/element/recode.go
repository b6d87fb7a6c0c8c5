package element

import (
	"fmt"
	"math"
	"sync"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// Recoder turns codes of one encoding into codes of another, multiplying values
// by a factor. It is safe for concurrent use.
type Recoder struct {
	from, to        kvcache.DType
	factor          float32
	codes           []uint32 // by source code; nil for sources of 32 bits
	exact           []Exactness
	clipped, rounds bool
}

type pair struct {
	from, to kvcache.DType
	factor   float32
}

var recoders sync.Map // pair to *Recoder: a table of 65536 takes some milliseconds

// NewRecoder gives the recoder of a pair of encodings. The factor must be a power
// of two, and one unless both encodings have 8 bits.
func NewRecoder(from, to kvcache.DType, factor float32) (*Recoder, error) {
	frac, _ := math.Frexp(float64(factor))
	switch {
	case from.Size() == 0 || to.Size() == 0 || from.Opaque() || to.Opaque():
		return nil, fmt.Errorf("elements of %s cannot become %s", from, to)
	case frac != 0.5 || factor != 1 && (!from.FP8() || !to.FP8()):
		return nil, fmt.Errorf("elements of %s cannot become %s times %g", from, to, factor)
	}
	key := pair{from, to, factor}
	if r, ok := recoders.Load(key); ok {
		return r.(*Recoder), nil
	}
	r := &Recoder{from: from, to: to, factor: factor}
	r.tabulate()
	kept, _ := recoders.LoadOrStore(key, r)
	return kept.(*Recoder), nil
}

func (r *Recoder) tabulate() {
	if r.from.Size() == 4 {
		r.clipped, r.rounds = r.to != kvcache.FP32, r.to != kvcache.FP32
		return
	}
	n := 1 << (8 * r.from.Size())
	codes, exact := make([]uint32, n), make([]Exactness, n)
	for c := range n {
		codes[c], exact[c] = r.compute(uint32(c))
		r.clipped = r.clipped || exact[c] == Clipped
		r.rounds = r.rounds || exact[c] == Rounded
	}
	r.codes, r.exact = codes, exact
}

func (r *Recoder) compute(code uint32) (uint32, Exactness) {
	if r.Keeps() {
		return code, Exact
	}
	v := Decode(r.from, code)
	if r.factor != 1 { // multiplying by one would still change the payload of a NaN
		v *= r.factor
	}
	return Encode(r.to, v)
}

// Recode gives the code that a code becomes.
func (r *Recoder) Recode(code uint32) (uint32, Exactness) {
	if r.codes == nil {
		return r.compute(code)
	}
	return r.codes[code], r.exact[code]
}

// Tables gives the codes and what becomes of them by source code, to read only;
// nil for sources of 32 bits.
func (r *Recoder) Tables() ([]uint32, []Exactness) { return r.codes, r.exact }

// Clips reports whether some source code is beyond the destination's range.
func (r *Recoder) Clips() bool { return r.clipped }

// Rounds reports whether some source code in range has no equal in the destination.
func (r *Recoder) Rounds() bool { return r.rounds }

// Keeps reports whether codes stay as they are.
func (r *Recoder) Keeps() bool { return r.from == r.to && r.factor == 1 }
