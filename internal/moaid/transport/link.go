package transport

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// link is a configured peer and what became of it.
type link struct {
	cfg    PeerConfig
	ctx    context.Context // until the link is removed or changed
	cancel context.CancelFunc
	bytes  *linkBytes

	mu        sync.Mutex
	up        bool
	since     time.Time
	lastError string
	address   string
}

// linkBytes outlives a change of the configuration.
type linkBytes struct{ sent, received atomic.Int64 }

func newLink(ctx context.Context, c PeerConfig, old *link) *link {
	l := &link{cfg: c, bytes: new(linkBytes)}
	if old != nil {
		l.bytes = old.bytes
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	return l
}

func (l *link) setUp(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.since, l.lastError, l.address = true, time.Now(), "", address
}

func (l *link) setDown(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up {
		l.since = time.Now()
	}
	l.up, l.address, l.lastError = false, "", err.Error()
}

// note records why an attempt failed. It is no news while a session is up.
func (l *link) note(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.up {
		l.lastError = reason
	}
}

func (l *link) status() LinkState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return LinkState{
		Up: l.up, LastError: l.lastError, Address: l.address, Since: l.since, Encryption: l.cfg.Encryption,
		BytesSent: l.bytes.sent.Load(), BytesReceived: l.bytes.received.Load(),
	}
}
