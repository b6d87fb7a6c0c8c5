package sched

import "math"

// sample picks a token: the first of the largest logits when temperature is 0,
// and otherwise one drawn from the softmax, always the same for the same seed
// and step.
func sample(logits []float32, temperature float64, seed uint64, step int) int {
	best := 0
	for i, x := range logits {
		if x > logits[best] {
			best = i
		}
	}
	if temperature <= 0 {
		return best
	}
	weights := make([]float64, len(logits))
	var sum float64
	for i, x := range logits {
		weights[i] = math.Exp(float64(x-logits[best]) / temperature)
		sum += weights[i]
	}
	z := seed + uint64(step+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	at := float64((z^z>>31)>>11) / (1 << 53) * sum
	for i, w := range weights {
		if at -= w; at < 0 {
			return i
		}
	}
	return best
}
