package kvd

import (
	"context"
	"net"
	"net/http"
	"time"
)

// engineTransport makes a connection for one request: an engine that closes idle
// connections after its own time cannot then lose a request, and on a unix
// socket a new connection costs microseconds.
func engineTransport(socket string) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var nd net.Dialer
			return nd.DialContext(ctx, "unix", socket)
		},
		DisableCompression: true,
		DisableKeepAlives:  true,
	}
}

// probeHTTP asks an engine's /health, every second while it answers and more
// often while it starts, and tells the owner.
func (d *Daemon) probeHTTP(ctx context.Context, e *engine, socket string) {
	t := time.NewTimer(0)
	defer t.Stop()
	last := "not asked yet"
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		why := health(ctx, socket)
		if ctx.Err() != nil {
			return
		}
		if why != last {
			last = why
			if !d.own.post(func() {
				if ctx.Err() == nil {
					e.http = why
					d.changed()
				}
			}) {
				return
			}
		}
		t.Reset(time.Second)
		if why != "" {
			t.Reset(200 * time.Millisecond)
		}
	}
}

func health(ctx context.Context, socket string) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/health", nil)
	if err != nil {
		return err.Error()
	}
	resp, err := engineTransport(socket).RoundTrip(req)
	if err != nil {
		return err.Error()
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return resp.Status
	}
	return ""
}
