// Package element encodes and decodes single elements of a KV cache, and says
// what an encoding could not preserve. It is pure.
//
// Codes are the bits of an element as an unsigned number; in memory they are
// little-endian. Encoding rounds to the nearest value, ties to the even code, and
// saturates: what is beyond the largest finite value becomes that value.
package element

import (
	"math"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// Exactness says what became of a value.
type Exactness uint8

// What became of a value: bits, so that counting needs no branch.
const (
	Exact   Exactness = 0 // the same value; NaN stays NaN, and -0 counts as 0
	Rounded Exactness = 1 // in range but not representable: the nearest was taken
	Clipped Exactness = 2 // beyond the largest finite value, which was taken
)

// format describes a binary floating point encoding with a sign bit on top.
type format struct {
	exponent int    // bits
	mantissa int    // bits
	bias     int    // of the exponent
	largest  uint32 // code of the largest finite value
	limit    uint32 // the largest finite value as the bits of a float32
	ieee     bool   // the highest exponent is infinity and NaN
	nan      uint32 // code of NaN where not ieee
	unsigned bool   // zero has no sign: the code of -0 is NaN
}

// formatOf knows the small encodings: OCP 8-bit floating point specification 1.0
// for e4m3fn and e5m2, the variant without negative zero for fnuz, IEEE 754 for fp16.
func formatOf(d kvcache.DType) (format, bool) {
	switch d {
	case kvcache.FP8E4M3FN:
		return format{exponent: 4, mantissa: 3, bias: 7, largest: 0x7e, limit: 0x43e00000, nan: 0x7f}, true
	case kvcache.FP8E4M3FNUZ:
		return format{exponent: 4, mantissa: 3, bias: 8, largest: 0x7f, limit: 0x43700000, nan: 0x80, unsigned: true}, true
	case kvcache.FP8E5M2:
		return format{exponent: 5, mantissa: 2, bias: 15, largest: 0x7b, limit: 0x47600000, ieee: true}, true
	case kvcache.FP16:
		return format{exponent: 5, mantissa: 10, bias: 15, largest: 0x7bff, limit: 0x477fe000, ieee: true}, true
	case kvcache.BF16, kvcache.FP32, kvcache.FP8DSMLA, kvcache.NVFP4:
	}
	return format{}, false
}

// Decode gives the value of a code. It is NaN for elements that have no value of
// their own ([kvcache.DType.Opaque]).
func Decode(d kvcache.DType, code uint32) float32 {
	switch d {
	case kvcache.FP32:
		return math.Float32frombits(code)
	case kvcache.BF16:
		return math.Float32frombits(code << 16)
	case kvcache.FP16, kvcache.FP8E4M3FN, kvcache.FP8E4M3FNUZ, kvcache.FP8E5M2:
		f, _ := formatOf(d)
		return f.decode(code)
	case kvcache.FP8DSMLA, kvcache.NVFP4:
	}
	return float32(math.NaN())
}

func (f format) decode(code uint32) float32 {
	sign := code >> (f.exponent + f.mantissa) & 1
	exponent := int(code>>f.mantissa) & (1<<f.exponent - 1)
	fraction := code & (1<<f.mantissa - 1)
	switch {
	case f.ieee && exponent == 1<<f.exponent-1: // infinity, or NaN with its payload
		return math.Float32frombits(sign<<31 | 0x7f800000 | fraction<<(23-f.mantissa))
	case f.unsigned && code == f.nan:
		return math.Float32frombits(0x7fc00000)
	case !f.ieee && !f.unsigned && code&^(sign<<(f.exponent+f.mantissa)) == f.nan:
		return math.Float32frombits(sign<<31 | 0x7fc00000)
	}
	scale := 1 - f.bias - f.mantissa // of subnormal values
	if exponent > 0 {
		fraction |= 1 << f.mantissa
		scale = exponent - f.bias - f.mantissa
	}
	v := float32(math.Ldexp(float64(fraction), scale))
	if sign == 1 {
		return float32(math.Copysign(float64(v), -1))
	}
	return v
}

// Encode gives the code of a value. Of elements that have no value of their own
// nothing can be encoded: the code is 0 and clipped.
func Encode(d kvcache.DType, v float32) (uint32, Exactness) {
	bits := math.Float32bits(v)
	switch d {
	case kvcache.FP32:
		return bits, Exact
	case kvcache.BF16:
		return encodeBF16(bits)
	case kvcache.FP16, kvcache.FP8E4M3FN, kvcache.FP8E4M3FNUZ, kvcache.FP8E5M2:
		f, _ := formatOf(d)
		return f.encode(bits)
	case kvcache.FP8DSMLA, kvcache.NVFP4:
	}
	return 0, Clipped
}

const (
	infinity = 0x7f800000 // of float32; greater bits without sign are NaN
	quiet    = 0x00400000
)

func encodeBF16(bits uint32) (uint32, Exactness) {
	sign, abs := bits>>31<<15, bits&0x7fffffff
	switch {
	case abs > infinity && abs>>16 == infinity>>16: // the payload of the NaN is in the bits that go
		return sign | (abs|quiet)>>16, Exact
	case abs >= infinity:
		return sign | abs>>16, Exact
	case abs > 0x7f7f0000:
		return sign | 0x7f7f, Clipped
	}
	code, exact := roundShift(abs, 16)
	return sign | code, exact
}

func (f format) encode(bits uint32) (uint32, Exactness) {
	sign, abs := bits>>31<<(f.exponent+f.mantissa), bits&0x7fffffff
	top := uint32(1<<f.exponent-1) << f.mantissa
	switch {
	case abs > infinity && f.ieee:
		fraction := abs & 0x7fffff >> (23 - f.mantissa)
		if fraction == 0 {
			fraction = 1 << (f.mantissa - 1)
		}
		return sign | top | fraction, Exact
	case abs > infinity && f.unsigned:
		return f.nan, Exact
	case abs > infinity:
		return sign | f.nan, Exact
	case abs == infinity && f.ieee:
		return sign | top, Exact
	case abs > f.limit:
		return sign | f.largest, Clipped
	}
	code, exact := f.round(abs)
	if code == 0 && f.unsigned {
		sign = 0
	}
	return sign | code, exact
}

// round gives the code nearest to a finite value in range, given as the bits of a
// float32 without sign.
func (f format) round(abs uint32) (uint32, Exactness) {
	if abs == 0 {
		return 0, Exact
	}
	exponent := int(abs>>23) - 127 + f.bias
	if exponent >= 1 { // rounding up may carry into the exponent, as it must
		return roundShift(uint32(exponent)<<23|abs&0x7fffff, 23-f.mantissa)
	}
	shift := 24 - f.mantissa - exponent
	if shift > 25 || abs < 1<<23 { // less than half of the smallest value
		return 0, Rounded
	}
	return roundShift(abs&0x7fffff|1<<23, shift)
}

// roundShift divides by 2^shift, rounding half to even.
func roundShift(v uint32, shift int) (uint32, Exactness) {
	q, rest, half := v>>shift, v&(1<<shift-1), uint32(1)<<(shift-1)
	if rest == 0 {
		return q, Exact
	}
	if rest > half || rest == half && q&1 == 1 {
		q++
	}
	return q, Rounded
}
