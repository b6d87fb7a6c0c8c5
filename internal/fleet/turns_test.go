package fleet

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

func TestTurn(t *testing.T) {
	t.Parallel()
	f := New(t.Context(), Settings{Fleet: "prod"})
	t.Cleanup(f.Close)
	done, err := f.Turn(t.Context(), "b", "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	other, err := f.Turn(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Turn(ended, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("two have it: %v", err)
	}
	done()
	other()

	var inside atomic.Int32
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			keys := []string{"a", "b"}
			if i%2 == 0 {
				keys = []string{"b", "a"}
			}
			done, err := f.Turn(t.Context(), keys...)
			if err != nil {
				t.Error(err)
				return
			}
			if inside.Add(1) > 1 {
				t.Error("two at a time")
			}
			inside.Add(-1)
			done()
		})
	}
	wg.Wait()
}
