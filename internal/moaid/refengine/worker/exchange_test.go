package worker

import (
	"slices"
	"sync"
	"testing"
)

// Parts of any length come together on every rank, in rank order, time after time.
func TestAllGather(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 4} {
		files, err := newExchange(ranks)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeAll(files) })
		bells := make([]int, ranks)
		for i := range bells {
			bells[i] = int(files[1+i].Fd())
		}
		var wg sync.WaitGroup
		for rank := range ranks {
			wg.Go(func() {
				x, err := joinExchange(int(files[0].Fd()), bells, rank)
				if err != nil {
					t.Error(err)
					return
				}
				for round, n := range []int{1, 7, 0, 1000, exchangeBuffer / 4, 3, 3, 3, 3} {
					part, whole, want := make([]float32, n), make([]float32, n*ranks), make([]float32, n*ranks)
					for i := range want {
						want[i] = float32(round*1000 + i/max(n, 1)*100 + i%97)
					}
					copy(part, want[rank*n:])
					if err := x.AllGather(part, whole); err != nil || !slices.Equal(whole, want) {
						t.Errorf("%d ranks, round %d: rank %d has other numbers, %v", ranks, round, rank, err)
						return
					}
				}
				if err := x.AllGather(make([]float32, 2), make([]float32, 1)); err == nil {
					t.Error("parts that do not fit are joined")
				}
			})
		}
		wg.Wait()
	}
}
