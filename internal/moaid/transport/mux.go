package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// Mux is a daemon's end of all its links: the port, the dialling, the sessions.
type Mux struct {
	opt     Options
	log     *slog.Logger
	cert    tls.Certificate
	certErr error // why no connection can be made or accepted
	gate    *gate
	http    *gateway // nil without Options.HTTP
	count   counters

	// ctx is the Mux's own lifetime, from New to Close.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // every goroutine of the Mux

	mu       sync.Mutex
	closed   bool
	made     uint64               // sessions so far
	links    map[string]*link     // by node
	live     map[*session]bool    // all that have not finished
	accepted map[wire.ID]*session // of those, ones whose streams the peer opens
	current  map[string]*session  // of those, the one of each node
}

// New makes a Mux that neither listens nor dials yet.
func New(opt Options) *Mux {
	opt.Timing = opt.Timing.withDefaults()
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.MaxUnauthenticated == 0 {
		opt.MaxUnauthenticated = defaultMaxUnauthenticated
	}
	m := &Mux{
		opt: opt, log: opt.Log, gate: newGate(opt.MaxUnauthenticated),
		links: make(map[string]*link), live: make(map[*session]bool),
		accepted: make(map[wire.ID]*session), current: make(map[string]*session),
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.cert, m.certErr = opt.Identity.Certificate()
	if opt.HTTP != nil {
		m.http = newGateway(m, opt.HTTP)
	}
	return m
}

// goIfOpen runs f in a goroutine that Close waits for, unless the Mux is closed.
func (m *Mux) goIfOpen(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.wg.Go(f)
	return true
}

// SetPeer adds a link, or changes it: a change ends its session and, at the end
// that dials, begins a new one. An equal configuration changes nothing.
func (m *Mux) SetPeer(c PeerConfig) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	old := m.links[c.Node]
	if old != nil && old.cfg.equal(&c) {
		m.mu.Unlock()
		return
	}
	l := newLink(m.ctx, c, old)
	m.links[c.Node] = l
	if c.Dial {
		m.wg.Go(func() { m.dialLoop(l) })
	}
	ended := m.sessionsOf(c.Node)
	m.mu.Unlock()
	if old != nil {
		old.cancel()
	}
	for _, s := range ended {
		s.Close(wire.CodeReplaced, "the link's configuration changed")
	}
}

// RemovePeer ends a link and its session. It does not wait for them.
func (m *Mux) RemovePeer(node string) {
	m.mu.Lock()
	l := m.links[node]
	delete(m.links, node)
	ended := m.sessionsOf(node)
	m.mu.Unlock()
	if l != nil {
		l.cancel()
	}
	for _, s := range ended {
		s.Close(wire.CodeNotPaired, "the link was removed")
	}
}

// sessionsOf lists the node's sessions. The caller holds mu.
func (m *Mux) sessionsOf(node string) []*session {
	var list []*session
	for s := range m.live {
		if s.node == node {
			list = append(list, s)
		}
	}
	return list
}

// PinsChanged ends the sessions and gateway connections whose key is no longer
// pinned for what it does.
func (m *Mux) PinsChanged() {
	m.mu.Lock()
	all := make([]*session, 0, len(m.live))
	for s := range m.live {
		all = append(all, s)
	}
	m.mu.Unlock()
	for _, s := range all {
		s.checkPin()
	}
	if m.http != nil {
		m.http.pinsChanged()
	}
}

// Status is the state of a link; the zero LinkState if there is none.
func (m *Mux) Status(name string) LinkState {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.links {
		if l.cfg.Link == name {
			st := l.status()
			if s := m.current[l.cfg.Node]; s != nil && st.Up {
				st.RTT = s.rtt()
			}
			return st
		}
	}
	return LinkState{}
}

// Session is the node's session, if one is up.
func (m *Mux) Session(node string) (Session, bool) {
	s := m.sessionUp(node)
	if s == nil {
		return nil, false
	}
	return s, true
}

func (m *Mux) sessionUp(node string) *session {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.current[node]
	if s == nil || !s.announced.Load() {
		return nil
	}
	select {
	case <-s.done:
		return nil
	default:
		return s
	}
}

// Probe sends bytes, 1 to wire.MaxProbe, of pseudo-random content to the node,
// whose daemon checks them. An error means that no answer came; a result with
// OK false that other bytes arrived.
func (m *Mux) Probe(ctx context.Context, node string, bytes int64) (ProbeResult, error) {
	if bytes < 1 || bytes > wire.MaxProbe {
		return ProbeResult{}, fmt.Errorf("a probe has 1 to %d bytes, not %d", wire.MaxProbe, bytes)
	}
	s := m.sessionUp(node)
	if s == nil {
		return ProbeResult{}, fmt.Errorf("probe node %s: %w", node, ErrNoSession)
	}
	return s.probe(ctx, bytes)
}

// Close ends everything and waits for it: after it returns, no Handler method
// runs and nothing of the Mux is left. It must not be called from a Handler.
func (m *Mux) Close() error {
	m.mu.Lock()
	m.closed = true
	all := make([]*session, 0, len(m.live))
	for s := range m.live {
		all = append(all, s)
	}
	m.mu.Unlock()
	for _, s := range all {
		s.Close(wire.CodeShutdown, "node "+m.opt.Node+" shuts its daemon down")
	}
	m.cancel()
	var err error
	if m.http != nil {
		err = m.http.close()
	}
	m.wg.Wait()
	return err
}

// Serve accepts connections until ctx or the Mux ends, then closes the listener
// and returns nil. Sessions outlive ctx. Any other end is an error.
func (m *Mux) Serve(ctx context.Context, ln net.Listener) error {
	if m.certErr != nil {
		return errors.Join(m.certErr, ln.Close())
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return errors.Join(errors.New("the transport is closed"), ln.Close())
	}
	m.wg.Add(1)
	m.mu.Unlock()
	defer m.wg.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)() //nolint:contextcheck // Close ends Serve, whatever its caller's context says
	closed := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { closed <- ln.Close() })
	defer stop()

	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			m.count.accepted.Add(1)
			m.admit(ctx, conn)
		case ctx.Err() != nil:
			return ignoreClosed(<-closed)
		case IsTemporary(err):
			m.log.Warn("cannot accept a connection, trying again", "error", err)
			if !sleep(ctx, 50*time.Millisecond) {
				return ignoreClosed(<-closed)
			}
		default:
			return errors.Join(fmt.Errorf("accept on %s: %w", ln.Addr(), err), ignoreClosed(ln.Close()))
		}
	}
}

// sleep waits for d, or says false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
