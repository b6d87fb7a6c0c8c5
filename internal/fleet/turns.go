package fleet

import (
	"context"
	"slices"
)

// Turn waits until the caller alone has everything that keys name, or ctx ends. done ends the turn; it must be called once.
func (f *Fleet) Turn(ctx context.Context, keys ...string) (done func(), err error) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys))) // in one order, so that no two wait for each other
	var mine []chan struct{}
	done = func() {
		for _, c := range mine {
			c <- struct{}{}
		}
	}
	for _, k := range keys {
		c := f.turn(k)
		select {
		case <-c:
			mine = append(mine, c)
		case <-ctx.Done():
			done()
			return nil, ctx.Err()
		}
	}
	return done, nil
}

func (f *Fleet) turn(key string) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok := f.turns[key]
	if !ok {
		c = make(chan struct{}, 1)
		c <- struct{}{}
		f.turns[key] = c
	}
	return c
}
