package kernel

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func vector(t *rapid.T, n int, label string) []float32 {
	seed := rapid.Uint64().Draw(t, label)
	v := make([]float32, n)
	for i := range v {
		seed = seed*6364136223846793005 + 1442695040888963407
		v[i] = float32(int32(seed>>32)) / (1 << 30)
	}
	return v
}

func TestMatMulIsTheSameInAnyBatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 11).Draw(t, "n")
		rows := rapid.IntRange(1, 19).Draw(t, "rows")
		inner := rapid.IntRange(1, 40).Draw(t, "inner")
		w, x := vector(t, rows*inner, "w"), vector(t, n*inner, "x")
		out := make([]float32, n*rows)
		MatMul(out, w, x, n, rows, inner)
		for i := range n {
			one := make([]float32, rows)
			MatMul(one, w, x[i*inner:], 1, rows, inner)
			for r := range rows {
				want := Dot(w[r*inner:(r+1)*inner], x[i*inner:(i+1)*inner])
				if math.Float32bits(out[i*rows+r]) != math.Float32bits(want) || math.Float32bits(one[r]) != math.Float32bits(want) {
					t.Fatalf("row %d of %d: %v, alone %v, want %v", r, rows, out[i*rows+r], one[r], want)
				}
			}
		}
	})
}

func TestExpIsCloseToTheLibrary(t *testing.T) {
	for x := -86.0; x < 88; x += 0.0371 {
		got, want := float64(Exp(float32(x))), math.Exp(float64(float32(x)))
		if math.Abs(got-want) > 3e-7*want {
			t.Fatalf("exp(%v) = %v, want %v", x, got, want)
		}
	}
	if Exp(-1000) != 0 || Exp(0) != 1 {
		t.Errorf("exp(-1000) = %v, exp(0) = %v", Exp(-1000), Exp(0))
	}
}

func TestRMSNormGivesUnitMeanSquare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := vector(t, 32, "x")
		gain := make([]float32, 32)
		for i := range gain {
			gain[i] = 1
		}
		out := make([]float32, 32)
		RMSNorm(out, x, gain)
		if ms := Dot(out, out) / 32; math.Abs(float64(ms)-1) > 1e-3 {
			t.Fatalf("mean square %v", ms)
		}
	})
}

func TestRopeKeepsLengthAndDependsOnDistanceOnly(t *testing.T) {
	r := NewRope(32, 2000, 10000)
	rapid.Check(t, func(t *rapid.T) {
		a, b := vector(t, 32, "a"), vector(t, 32, "b")
		p := rapid.IntRange(0, 900).Draw(t, "p")
		d := rapid.IntRange(0, 90).Draw(t, "d")
		shift := rapid.IntRange(0, 900).Draw(t, "shift")
		dot := func(at int) float64 {
			x, y := append([]float32{}, a...), append([]float32{}, b...)
			r.Apply(x, at+d)
			r.Apply(y, at)
			return float64(Dot(x, y))
		}
		if x, y := dot(p), dot(p+shift); math.Abs(x-y) > 1e-3 {
			t.Fatalf("distance %d gives %v at %d and %v at %d", d, x, p, y, p+shift)
		}
	})
}

func TestAttendIsAWeightedMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const dim = 16
		width := 8 * rapid.IntRange(1, 3).Draw(t, "width")
		n := rapid.IntRange(1, 40).Draw(t, "n")
		stride := n + rapid.IntRange(0, 5).Draw(t, "spare")
		q, keys, plain := vector(t, dim, "q"), vector(t, n*dim, "k"), vector(t, n*width, "v")
		values := make([]float32, stride*width)
		for j := range n {
			for d := range width {
				values[(d/8*stride+j)*8+d%8] = plain[j*width+d]
			}
		}
		out := make([]float32, width)
		Attend(out, q, keys, values, make([]float32, n), n, stride, 0.25)
		var total float64
		want := make([]float64, width)
		for j := range n {
			w := math.Exp(float64(Dot(q, keys[j*dim:(j+1)*dim])) * 0.25)
			total += w
			for d := range width {
				want[d] += w * float64(plain[j*width+d])
			}
		}
		for d := range width {
			if math.Abs(float64(out[d])-want[d]/total) > 1e-4 {
				t.Fatalf("element %d is %v, want %v", d, out[d], want[d]/total)
			}
		}
	})
}
