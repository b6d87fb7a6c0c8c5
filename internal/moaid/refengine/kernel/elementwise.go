package kernel

import (
	"math"
	"slices"
)

// RMSNorm sets out to x scaled to a mean square of one and multiplied by gain.
func RMSNorm(out, x, gain []float32) {
	gain, out = gain[:len(x)], out[:len(x)]
	var sum float32
	for _, v := range x {
		sum += float32(v * v)
	}
	scale := float32(1 / math.Sqrt(float64(sum)/float64(len(x))+1e-6))
	for i, v := range x {
		out[i] = float32(v*scale) * gain[i]
	}
}

// Add adds y to x.
func Add(x, y []float32) {
	y = y[:len(x)]
	for i := range x {
		x[i] += y[i]
	}
}

// SwiGLU sets gate to silu(gate) * up.
func SwiGLU(gate, up []float32) {
	up = up[:len(gate)]
	for i, g := range gate {
		gate[i] = float32(g/(1+Exp(-g))) * up[i]
	}
}

// Exp is e to the x for float32. It is written out because the library's differs
// between architectures in the last bit.
func Exp(x float32) float32 {
	const (
		log2e = 1.44269504088896341
		ln2hi = 0.693359375
		ln2lo = -2.12194440e-4
	)
	switch {
	case x > 88:
		x = 88
	case x < -87:
		return 0
	case x != x:
		return x
	}
	n := float32(math.Floor(float64(float32(x*log2e) + 0.5)))
	x -= float32(n * ln2hi)
	x -= float32(n * ln2lo)
	y := float32(1.9875691500e-4)
	y = float32(y*x) + 1.3981999507e-3
	y = float32(y*x) + 8.3334519073e-3
	y = float32(y*x) + 4.1665795894e-2
	y = float32(y*x) + 1.6666665459e-1
	y = float32(y*x) + 5.0000001201e-1
	y = float32(float32(y*x)*x) + x + 1
	return y * math.Float32frombits(uint32(int32(n)+127)<<23)
}

// Rope holds the rotations of rotary position embedding for every position.
type Rope struct {
	half     int
	cos, sin []float32 // position x half
}

// NewRope prepares positions 0 to positions-1 of heads of headDim elements.
func NewRope(headDim, positions int, base float64) *Rope {
	r := &Rope{half: headDim / 2}
	r.cos = make([]float32, positions*r.half)
	r.sin = make([]float32, positions*r.half)
	for i := range r.half {
		f := Frequency(i, headDim, base)
		for p := range positions {
			s, c := math.Sincos(float64(p) * f)
			r.cos[p*r.half+i], r.sin[p*r.half+i] = float32(c), float32(s)
		}
	}
	return r
}

// Frequency is the angle a position of the i-th pair of a head.
func Frequency(i, headDim int, base float64) float64 {
	return math.Pow(base, -2*float64(i)/float64(headDim))
}

// Apply rotates one head's vector in place; elements i and i+half are a pair.
func (r *Rope) Apply(v []float32, pos int) {
	c, s := r.cos[pos*r.half:(pos+1)*r.half], r.sin[pos*r.half:(pos+1)*r.half]
	a, b := v[:r.half], v[r.half:2*r.half]
	for i, x := range a {
		y := b[i]
		a[i] = float32(x*c[i]) - float32(y*s[i])
		b[i] = float32(x*s[i]) + float32(y*c[i])
	}
}

// Softmax turns scores into weights that sum to one.
func Softmax(x []float32) {
	top := slices.Max(x)
	var sum float32
	for i, v := range x {
		x[i] = Exp(v - top)
		sum += x[i]
	}
	for i := range x {
		x[i] /= sum
	}
}
