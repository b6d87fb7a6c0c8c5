package kvd

import (
	"context"
	"net/http"
)

// drain takes no new requests and waits for those that engines answer, for a
// bounded time. Those that are still held are sent away too: they have cost the
// engine nothing, and another daemon may take them. All else goes on meanwhile.
func (d *Daemon) drain(ctx context.Context) {
	close(d.stopping)
	if d.cfg.Drain == 0 {
		return
	}
	empty, running := d.forwards.drained()
	if running == 0 {
		return
	}
	d.log.Info("KV daemon takes no new requests and finishes those that engines answer", "requests", running, "at_most", d.cfg.Drain.String())
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Drain)
	defer cancel()
	select {
	case <-empty:
	case <-ctx.Done():
		_, running = d.forwards.drained()
		d.log.Warn("requests were not answered in time and are cut off", "requests", running, "after", d.cfg.Drain.String())
	}
}

// drained gives a channel that is closed once nothing is forwarded, and how many
// requests are.
func (f *forwards) drained() (<-chan struct{}, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == 0 {
		none := make(chan struct{})
		close(none)
		return none, 0
	}
	if f.empty == nil {
		f.empty = make(chan struct{})
	}
	return f.empty, f.count
}

// ending reports whether the daemon takes no new requests any more.
func (d *Daemon) ending() bool {
	select {
	case <-d.stopping:
		return true
	default:
		return false
	}
}

// refuseStopping sends a request away that another daemon, or this one's next run,
// may take.
func refuseStopping(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	apiError(w, http.StatusServiceUnavailable, "stopping", errStopping.Error(), "")
}
