package kernel

// MatMul sets out[t*rows+r] to the product of row r of w (rows x inner) and row t
// of x (n x inner).
func MatMul(out, w, x []float32, n, rows, inner int) {
	t := 0
	for ; t+4 <= n; t += 4 {
		mul4(out[t*rows:(t+4)*rows], w, x[t*inner:(t+4)*inner], rows, inner)
	}
	for ; t < n; t++ {
		mul1(out[t*rows:(t+1)*rows], w, x[t*inner:(t+1)*inner], rows, inner)
	}
}

// mul4 takes four rows of x and two of w at a time: eight sums that do not wait
// for each other.
func mul4(out, w, x []float32, rows, inner int) {
	x0, x1, x2, x3 := x[:inner], x[inner:2*inner], x[2*inner:3*inner], x[3*inner:4*inner]
	r := 0
	for ; r+2 <= rows; r += 2 {
		w0, w1 := w[r*inner:(r+1)*inner], w[(r+1)*inner:(r+2)*inner]
		w0, w1, x1, x2, x3 = w0[:len(x0)], w1[:len(x0)], x1[:len(x0)], x2[:len(x0)], x3[:len(x0)]
		var a0, a1, a2, a3, b0, b1, b2, b3 float32
		for k, v := range x0 {
			p, q := w0[k], w1[k]
			a0 += float32(p * v)
			b0 += float32(q * v)
			v = x1[k]
			a1 += float32(p * v)
			b1 += float32(q * v)
			v = x2[k]
			a2 += float32(p * v)
			b2 += float32(q * v)
			v = x3[k]
			a3 += float32(p * v)
			b3 += float32(q * v)
		}
		out[r], out[r+1] = a0, b0
		out[rows+r], out[rows+r+1] = a1, b1
		out[2*rows+r], out[2*rows+r+1] = a2, b2
		out[3*rows+r], out[3*rows+r+1] = a3, b3
	}
	for ; r < rows; r++ {
		for t := range 4 {
			out[t*rows+r] = Dot(w[r*inner:(r+1)*inner], x[t*inner:(t+1)*inner])
		}
	}
}

// mul1 takes one row of x and eight of w at a time.
func mul1(out, w, x []float32, rows, inner int) {
	r := 0
	for ; r+8 <= rows; r += 8 {
		Dot8((*[8]float32)(out[r:]), x, w[r*inner:(r+8)*inner])
	}
	for ; r < rows; r++ {
		out[r] = Dot(w[r*inner:(r+1)*inner], x)
	}
}

// Dot is the sum of products of a and b, which are equally long.
func Dot(a, b []float32) float32 {
	b = b[:len(a)]
	var s float32
	for i, v := range a {
		s += float32(v * b[i])
	}
	return s
}

// Dot8 sets out to the products of q and eight consecutive rows of m.
func Dot8(out *[8]float32, q, m []float32) {
	n := len(q)
	m0, m1, m2, m3 := m[:n], m[n:2*n], m[2*n:3*n], m[3*n:4*n]
	m4, m5, m6, m7 := m[4*n:5*n], m[5*n:6*n], m[6*n:7*n], m[7*n:8*n]
	m0, m1, m2, m3 = m0[:len(q)], m1[:len(q)], m2[:len(q)], m3[:len(q)]
	m4, m5, m6, m7 = m4[:len(q)], m5[:len(q)], m6[:len(q)], m7[:len(q)]
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for i, v := range q {
		s0 += float32(v * m0[i])
		s1 += float32(v * m1[i])
		s2 += float32(v * m2[i])
		s3 += float32(v * m3[i])
		s4 += float32(v * m4[i])
		s5 += float32(v * m5[i])
		s6 += float32(v * m6[i])
		s7 += float32(v * m7[i])
	}
	*out = [8]float32{s0, s1, s2, s3, s4, s5, s6, s7}
}
