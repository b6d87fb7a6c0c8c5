package transport

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
)

// Limits of the gateway side. There is no limit for a whole response: answers
// stream for as long as the model speaks.
const (
	gatewayHeaderTimeout = 10 * time.Second
	gatewayIdleTimeout   = 120 * time.Second
)

type gatewayKey struct{}

// GatewayName is the name of the pin that a request of Options.HTTP came with.
func GatewayName(ctx context.Context) (string, bool) {
	name, ok := ctx.Value(gatewayKey{}).(string)
	return name, ok
}

// gateway serves HTTP/1.1 on connections that have authenticated themselves. It
// is the net.Listener of its own http.Server.
type gateway struct {
	mux    *Mux
	server *http.Server
	conns  chan net.Conn
	done   chan struct{}
	once   sync.Once
	served chan struct{}  // Serve has returned: no connection is taken any more
	active sync.WaitGroup // connections that the server has taken

	mu   sync.Mutex
	open map[*gatewayConn]bool
}

// gatewayConn hides the *tls.Conn: http.Server would look at the ALPN and refuse
// a protocol that it does not know.
type gatewayConn struct {
	net.Conn
	raw  net.Conn
	key  ed25519.PublicKey
	name string
}

func newGateway(m *Mux, h http.Handler) *gateway {
	g := &gateway{mux: m, conns: make(chan net.Conn), done: make(chan struct{}), served: make(chan struct{}),
		open: make(map[*gatewayConn]bool)}
	g.server = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: gatewayHeaderTimeout,
		IdleTimeout:       gatewayIdleTimeout,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if gc, ok := c.(*gatewayConn); ok {
				return context.WithValue(ctx, gatewayKey{}, gc.name)
			}
			return ctx
		},
		ConnState: g.connState,
		// What a client's connection does to the server is no news for operators.
		ErrorLog: slog.NewLogLogger(m.log.Handler(), slog.LevelDebug),
	}
	m.goIfOpen(func() {
		defer close(g.served)
		if err := ignoreClosed(g.server.Serve(g)); err != nil {
			m.log.Error("the gateway server ended", "error", err)
		}
	})
	return g
}

func (g *gateway) connState(c net.Conn, state http.ConnState) {
	gc, ok := c.(*gatewayConn)
	if !ok {
		return
	}
	switch state {
	case http.StateNew:
		g.active.Add(1)
	case http.StateClosed, http.StateHijacked:
		g.mu.Lock()
		delete(g.open, gc)
		g.mu.Unlock()
		g.active.Done()
	case http.StateActive, http.StateIdle:
	}
}

// serve hands an authenticated connection to the server.
func (g *gateway) serve(raw net.Conn, tc *tls.Conn, who *peerIdentity) {
	gc := &gatewayConn{Conn: tc, raw: raw, key: who.key, name: who.name}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		g.mux.closeConn(raw)
		return
	}
	g.mu.Lock()
	g.open[gc] = true
	g.mu.Unlock()
	// The pin may have gone between the handshake and the registration.
	if _, _, ok := g.mux.opt.Pins.Allowed(who.key, api.RoleGateway); ok {
		select {
		case g.conns <- gc:
			return
		case <-g.done:
		}
	}
	g.mu.Lock()
	delete(g.open, gc)
	g.mu.Unlock()
	g.mux.closeConn(raw)
}

func (g *gateway) pinsChanged() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for gc := range g.open {
		if _, _, ok := g.mux.opt.Pins.Allowed(gc.key, api.RoleGateway); !ok {
			g.mux.closeConn(gc.raw)
		}
	}
}

// close ends all connections and waits for their handlers, whose contexts end.
func (g *gateway) close() error {
	err := g.server.Close()
	// Serve may never have begun, and then does not know its listener.
	if cerr := g.Close(); err == nil {
		err = cerr
	}
	<-g.served
	g.active.Wait()
	return ignoreClosed(err)
}

// Accept, Close and Addr make the gateway a net.Listener.
func (g *gateway) Accept() (net.Conn, error) {
	select {
	case c := <-g.conns:
		return c, nil
	case <-g.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (g *gateway) Close() error {
	g.once.Do(func() { close(g.done) })
	return nil
}

// Addr names what the server listens on, for its logs only.
func (g *gateway) Addr() net.Addr { return gatewayAddr{} }

type gatewayAddr struct{}

func (gatewayAddr) Network() string { return "moai-http" }
func (gatewayAddr) String() string  { return "moai-http/1" }
