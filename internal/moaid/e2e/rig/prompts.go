package rig

import (
	"context"
	"math"
	"sync"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine"
)

// atOnce is how many requests run at the same time, so that batches are mixed.
const atOnce = 4

// Prompts gives n prompts of 1 to longest tokens, no two of the same length, their
// lengths spread evenly on a logarithmic scale. Only one has a single token:
// decode computes that again whatever it received.
func Prompts(n, longest int, seed uint64) [][]int {
	out := make([][]int, n)
	size := 0
	for i := range out {
		size = max(size+1, int(math.Round(math.Pow(float64(longest), float64(i)/float64(n-1)))))
		out[i] = make([]int, size)
		for j := range out[i] {
			seed = seed*6364136223846793005 + 1442695040888963407
			out[i][j] = int(seed >> 33 & 0xff)
		}
	}
	return out
}

// Each runs f for all prompts, some at once, and fails the test with the first error.
func Each(t testing.TB, ps [][]int, f func(i int, p []int) error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, len(ps))
	next := make(chan int)
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				errs[i] = f(i, ps[i])
			}
		})
	}
	for i := range ps {
		next <- i
	}
	close(next)
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("prompt %d of %d tokens: %v", i, len(ps[i]), err)
		}
	}
}

// Alone answers the prompts on one engine without a connector.
func Alone(t testing.TB, cfg refengine.Config, ps [][]int, n int) []Answer {
	t.Helper()
	e := StartEngine(t, nil, cfg)
	out := make([]Answer, len(ps))
	Each(t, ps, func(i int, p []int) (err error) {
		out[i], err = e.Complete(context.Background(), p, n, nil)
		return err
	})
	return out
}
