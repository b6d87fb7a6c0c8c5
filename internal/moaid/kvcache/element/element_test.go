package element

import (
	"math"
	"sort"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"pgregory.net/rapid"
)

// slow8 is the value of an 8-bit code read off the specifications, by formula.
// The second result is false for NaN.
func slow8(d kvcache.DType, c int) (float64, bool) {
	s, e, m := float64(1), 0, 0.0
	if c >= 0x80 {
		s = -1
	}
	bias, lsb := 0, 0.0
	switch d {
	case kvcache.FP8E4M3FN:
		if c == 0x7f || c == 0xff {
			return 0, false
		}
		e, m, bias, lsb = c>>3&15, float64(c&7)/8, 7, 1
	case kvcache.FP8E4M3FNUZ:
		if c == 0x80 {
			return 0, false
		}
		e, m, bias, lsb = c>>3&15, float64(c&7)/8, 8, 1
	case kvcache.FP8E5M2:
		e, m, bias, lsb = c>>2&31, float64(c&3)/4, 15, 1
		if e == 31 && c&3 != 0 {
			return 0, false
		}
		if e == 31 {
			return s * math.Inf(1), true
		}
	default:
		panic(d + " has no 8-bit values")
	}
	if e == 0 {
		return s * m * lsb * math.Pow(2, float64(1-bias)), true
	}
	return s * (1 + m) * math.Pow(2, float64(e-bias)), true
}

func slow(d kvcache.DType, c int) (float64, bool) {
	switch d {
	case kvcache.BF16:
		v := float64(math.Float32frombits(uint32(c) << 16))
		return v, !math.IsNaN(v)
	case kvcache.FP16:
		s, e, m := float64(1), c>>10&31, float64(c&1023)/1024
		if c >= 1<<15 {
			s = -1
		}
		switch {
		case e == 31 && c&1023 != 0:
			return 0, false
		case e == 31:
			return s * math.Inf(1), true
		case e == 0:
			return s * m * math.Pow(2, -14), true
		}
		return s * (1 + m) * math.Pow(2, float64(e-15)), true
	default:
		return slow8(d, c)
	}
}

var small = []kvcache.DType{kvcache.FP8E4M3FN, kvcache.FP8E4M3FNUZ, kvcache.FP8E5M2, kvcache.FP16, kvcache.BF16}

func TestDecodeOfEveryCode(t *testing.T) {
	for _, d := range small {
		for c := range 1 << (8 * d.Size()) {
			want, number := slow(d, c)
			got := float64(Decode(d, uint32(c)))
			if math.IsNaN(got) == number || number && (got != want || math.Signbit(got) != math.Signbit(want)) {
				t.Fatalf("%s %#x is %g, want %g (%t)", d, c, got, want, number)
			}
		}
	}
}

func TestRangesOfTheSpecifications(t *testing.T) {
	for d, want := range map[kvcache.DType][2]float64{ // largest and smallest positive value
		kvcache.FP8E4M3FN: {448, math.Pow(2, -9)}, kvcache.FP8E4M3FNUZ: {240, math.Pow(2, -10)},
		kvcache.FP8E5M2: {57344, math.Pow(2, -16)}, kvcache.FP16: {65504, math.Pow(2, -24)},
	} {
		largest, smallest := 0.0, math.Inf(1)
		for c := range 1 << (8 * d.Size()) {
			if v := float64(Decode(d, uint32(c))); v > 0 && !math.IsInf(v, 1) {
				largest, smallest = max(largest, v), min(smallest, v)
			}
		}
		if largest != want[0] || smallest != want[1] {
			t.Errorf("%s: %g and %g, want %v", d, largest, smallest, want)
		}
	}
}

func TestThereAndBackOfEveryCode(t *testing.T) {
	for _, d := range small {
		for c := range 1 << (8 * d.Size()) {
			if got, exact := Encode(d, Decode(d, uint32(c))); got != uint32(c) || exact != Exact {
				t.Fatalf("%s %#x comes back as %#x (%d)", d, c, got, exact)
			}
		}
	}
}

// nearest searches every finite code of an encoding for the one nearest to v.
type nearest struct {
	d      kvcache.DType
	values []float64 // finite and not negative, ascending
	codes  []int
}

func newNearest(d kvcache.DType) *nearest {
	n := &nearest{d: d}
	for c := range 1 << (8*d.Size() - 1) {
		if v, ok := slow(d, c); ok && !math.IsInf(v, 0) {
			n.codes = append(n.codes, c)
		}
	}
	sort.Slice(n.codes, func(i, j int) bool { a, _ := slow(d, n.codes[i]); b, _ := slow(d, n.codes[j]); return a < b })
	for _, c := range n.codes {
		v, _ := slow(d, c)
		n.values = append(n.values, v)
	}
	return n
}

// find gives the code for a finite value.
func (n *nearest) find(v float64) (uint32, Exactness) {
	abs, last := math.Abs(v), len(n.values)-1
	sign := uint32(0)
	if math.Signbit(v) {
		sign = 1 << (8*n.d.Size() - 1)
	}
	if abs > n.values[last] {
		return sign | uint32(n.codes[last]), Clipped
	}
	i := sort.SearchFloat64s(n.values, abs)
	exact := Exact
	if n.values[i] != abs {
		exact = Rounded
		below, above := abs-n.values[i-1], n.values[i]-abs
		if below < above || below == above && n.codes[i-1]%2 == 0 {
			i--
		}
	}
	if n.d == kvcache.FP8E4M3FNUZ && n.codes[i] == 0 {
		sign = 0
	}
	return sign | uint32(n.codes[i]), exact
}

// TestEncodeTakesTheNearest: Encode against the search, on every 16-bit value
// of both kinds and on drawn ones.
func TestEncodeTakesTheNearest(t *testing.T) {
	for _, d := range small {
		n := newNearest(d)
		check := func(v float32) {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return
			}
			want, wantExact := n.find(float64(v))
			if got, exact := Encode(d, v); got != want || exact != wantExact {
				t.Fatalf("%s of %g (%#x) is %#x (%d), want %#x (%d)", d, v, math.Float32bits(v), got, exact, want, wantExact)
			}
		}
		for c := range uint32(1 << 16) {
			check(Decode(kvcache.BF16, c))
			check(Decode(kvcache.FP16, c))
		}
		for i := range n.values[:len(n.values)-1] { // ties and their neighbours
			mid := float32((n.values[i] + n.values[i+1]) / 2)
			for _, v := range []float32{mid, math.Nextafter32(mid, 0), math.Nextafter32(mid, math.MaxFloat32)} {
				check(v)
				check(-v)
			}
		}
		rapid.Check(t, func(t *rapid.T) {
			check(math.Float32frombits(rapid.Uint32().Draw(t, "bits")))
			check(float32(rapid.Float64Range(-500, 500).Draw(t, "v")))
		})
	}
}

func TestSpecialValues(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		d     kvcache.DType
		v     float32
		code  uint32
		exact Exactness
	}{
		{kvcache.FP8E4M3FN, inf, 0x7e, Clipped}, {kvcache.FP8E4M3FN, -inf, 0xfe, Clipped}, {kvcache.FP8E4M3FN, nan, 0x7f, Exact},
		{kvcache.FP8E4M3FNUZ, inf, 0x7f, Clipped}, {kvcache.FP8E4M3FNUZ, nan, 0x80, Exact}, {kvcache.FP8E4M3FNUZ, float32(math.Copysign(0, -1)), 0, Exact},
		{kvcache.FP8E4M3FNUZ, -1e-9, 0, Rounded}, {kvcache.FP8E5M2, inf, 0x7c, Exact}, {kvcache.FP8E5M2, 1e9, 0x7b, Clipped},
		{kvcache.FP16, -inf, 0xfc00, Exact}, {kvcache.FP16, 65505, 0x7bff, Clipped}, {kvcache.BF16, inf, 0x7f80, Exact}, {kvcache.BF16, math.MaxFloat32, 0x7f7f, Clipped},
		{kvcache.BF16, math.Float32frombits(0x7f800001), 0x7fc0, Exact}, {kvcache.FP16, math.Float32frombits(0xff800001), 0xfe00, Exact},
		{kvcache.FP16, math.SmallestNonzeroFloat32, 0, Rounded}, {kvcache.BF16, math.SmallestNonzeroFloat32, 0, Rounded},
		{kvcache.NVFP4, 1, 0, Clipped},
	} {
		if got, exact := Encode(c.d, c.v); got != c.code || exact != c.exact {
			t.Errorf("%s of %g is %#x (%d), want %#x (%d)", c.d, c.v, got, exact, c.code, c.exact)
		}
	}
	if v := Decode(kvcache.FP8DSMLA, 1); !math.IsNaN(float64(v)) {
		t.Errorf("an opaque element is %g", v)
	}
}
