package kernel

// Attend computes one query head over n keys and values: out is the mean of the
// values weighted by softmax(q·k·scale). keys is n x len(q); values is n x len(out), a
// multiple of eight, and blocked: element (d, j) is at (d/8*stride+j)*8+d%8. scores is
// scratch of at least n.
func Attend(out, q, keys, values, scores []float32, n, stride int, scale float32) {
	dim := len(q)
	scores = scores[:n]
	j := 0
	for ; j+8 <= n; j += 8 {
		Dot8((*[8]float32)(scores[j:]), q, keys[j*dim:(j+8)*dim])
	}
	for ; j < n; j++ {
		scores[j] = Dot(q, keys[j*dim:(j+1)*dim])
	}
	top := scores[0]
	for _, s := range scores {
		top = max(top, s)
	}
	top *= scale
	var sum float32
	for i, s := range scores {
		e := Exp(float32(s*scale) - top)
		scores[i] = e
		sum += e
	}
	inv := 1 / sum
	for d := 0; d < len(out); d += 8 {
		weigh((*[8]float32)(out[d:]), scores, values[d/8*stride*8:], inv)
	}
}

// weigh sums eight elements of the values over all keys.
func weigh(out *[8]float32, weights, values []float32, inv float32) {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for j, w := range weights {
		v := (*[8]float32)(values[j*8:])
		s0 += float32(w * v[0])
		s1 += float32(w * v[1])
		s2 += float32(w * v[2])
		s3 += float32(w * v[3])
		s4 += float32(w * v[4])
		s5 += float32(w * v[5])
		s6 += float32(w * v[6])
		s7 += float32(w * v[7])
	}
	*out = [8]float32{s0 * inv, s1 * inv, s2 * inv, s3 * inv, s4 * inv, s5 * inv, s6 * inv, s7 * inv}
}
