package transformer

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache/element"
)

// codec turns numbers into elements of one encoding and back. An element stands for
// its value times the factor.
type codec struct {
	dtype  kvcache.DType
	size   int
	factor float32
	table  []float32 // numbers by code, of the encodings that need one
}

func newCodec(d kvcache.DType, factor float32) codec {
	c := codec{dtype: d, size: d.Size(), factor: factor}
	switch {
	case d == kvcache.FP16:
		c.table = halves()
	case c.size == 1:
		c.table = make([]float32, 256)
		for code := range c.table {
			c.table[code] = element.Decode(d, uint32(code)) * factor
		}
	}
	return c
}

var halves = sync.OnceValue(func() []float32 {
	t := make([]float32, 1<<16)
	for code := range t {
		t[code] = element.Decode(kvcache.FP16, uint32(code))
	}
	return t
})

// put stores the element nearest to x; beyond the range of the encoding that is the
// largest.
func (c *codec) put(dst []byte, x float32) {
	code, _ := element.Encode(c.dtype, x/c.factor)
	switch c.size {
	case 1:
		dst[0] = byte(code)
	case 2:
		binary.LittleEndian.PutUint16(dst, uint16(code))
	default:
		binary.LittleEndian.PutUint32(dst, code)
	}
}

// decode reads elements that lie side by side. Of encodings of 16 bits, their number
// is a multiple of four.
func (c *codec) decode(dst []float32, src []byte) {
	src = src[:len(dst)*c.size]
	switch {
	case c.size == 1:
		table := (*[256]float32)(c.table)
		for i, code := range src {
			dst[i] = table[code]
		}
	case c.dtype == kvcache.BF16:
		for ; len(dst) >= 4; dst, src = dst[4:], src[8:] {
			widen((*[4]float32)(dst), binary.LittleEndian.Uint64(src))
		}
	case c.dtype == kvcache.FP16:
		table := (*[1 << 16]float32)(c.table)
		for i := range dst {
			dst[i] = table[binary.LittleEndian.Uint16(src[2*i:])]
		}
	default:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	}
}

// decodeAt reads elements that lie at the given bytes.
func (c *codec) decodeAt(dst []float32, src []byte, at []int) {
	dst = dst[:len(at)]
	switch {
	case c.size == 1:
		table := (*[256]float32)(c.table)
		for i, p := range at {
			dst[i] = table[src[p]]
		}
	case c.dtype == kvcache.BF16:
		for i, p := range at {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[p:])) << 16)
		}
	case c.dtype == kvcache.FP16:
		table := (*[1 << 16]float32)(c.table)
		for i, p := range at {
			dst[i] = table[binary.LittleEndian.Uint16(src[p:])]
		}
	default:
		for i, p := range at {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[p:]))
		}
	}
}

// widen decodes four bfloat16.
func widen(out *[4]float32, x uint64) {
	out[0] = math.Float32frombits(uint32(x) << 16)
	out[1] = math.Float32frombits(uint32(x) & 0xffff0000)
	out[2] = math.Float32frombits(uint32(x>>32) << 16)
	out[3] = math.Float32frombits(uint32(x>>32) & 0xffff0000)
}
