package refmodel

import "fmt"

// Recite gives the n tokens with which reciting weights answer prompt. The error
// says that the prompt is too short for the answer to be known.
func (m Model) Recite(prompt []int, n int) ([]int, error) {
	lag := m.Lag()
	if m.Weights != Reciting {
		return nil, fmt.Errorf("model %s does not recite", m.Name)
	}
	if len(prompt) <= lag {
		return nil, fmt.Errorf("a prompt of %d tokens is not longer than the lag of %d", len(prompt), lag)
	}
	x := append(make([]int, 0, len(prompt)+n), prompt...)
	for range n {
		x = append(x, x[len(x)-1-lag])
	}
	return x[len(prompt):], nil
}
