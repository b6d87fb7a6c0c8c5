package transport

import (
	"context"
	"net"
	"slices"
	"sync"
)

// gate bounds the connections that have not authenticated themselves. When it
// is full, a new one pushes out the oldest: a real peer needs milliseconds, so
// the oldest is the likeliest to be idle.
type gate struct {
	slots chan struct{}
	mu    sync.Mutex
	order []net.Conn // oldest first
}

func newGate(n int) *gate { return &gate{slots: make(chan struct{}, n)} }

// enter waits for a slot, having closed the oldest connection if there was none.
// leave gives it back and may be called more than once. ok is false if ctx ended.
func (g *gate) enter(ctx context.Context, c net.Conn) (leave func(), evicted, ok bool) {
	select {
	case g.slots <- struct{}{}:
	default:
		evicted = g.evict()
		select {
		case g.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, evicted, false
		}
	}
	g.mu.Lock()
	g.order = append(g.order, c)
	g.mu.Unlock()
	return sync.OnceFunc(func() {
		g.mu.Lock()
		if i := slices.Index(g.order, c); i >= 0 {
			g.order = slices.Delete(g.order, i, i+1)
		}
		g.mu.Unlock()
		<-g.slots
	}), evicted, true
}

// evict closes the oldest connection; its owner then leaves.
func (g *gate) evict() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.order) == 0 {
		return false
	}
	// A failed close leaves nothing to do: the connection's deadline still runs.
	_ = g.order[0].Close()
	g.order = slices.Delete(g.order, 0, 1)
	return true
}
