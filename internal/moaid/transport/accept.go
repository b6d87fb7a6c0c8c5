package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// admit gives a new connection a slot and its goroutine.
func (m *Mux) admit(ctx context.Context, conn net.Conn) {
	leave, evicted, ok := m.gate.enter(ctx, conn)
	if evicted {
		m.count.evicted.Add(1)
	}
	if ok && m.goIfOpen(func() { m.handle(conn, leave) }) {
		return
	}
	if ok {
		leave()
	}
	m.closeConn(conn)
}

// handle decides by the first byte. It owns conn until it hands it to a session
// or to the gateway server; leave marks the connection as authenticated.
func (m *Mux) handle(conn net.Conn, leave func()) {
	defer leave()
	stop := context.AfterFunc(m.ctx, func() { m.closeConn(conn) })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(m.opt.Timing.Unauthenticated)); err != nil {
		m.closeConn(conn)
		return
	}
	var first [1]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		m.count.refusedSilent.Add(1)
		m.closeConn(conn)
		return
	}
	switch first[0] {
	case wire.RecordTLS:
		m.acceptTLS(conn, &replayConn{Conn: conn, prefix: first[:]}, leave, stop)
	case wire.Magic[0]:
		m.acceptStream(conn, first[0])
	default:
		m.count.refusedBytes.Add(1)
		m.log.Debug("closed a connection that speaks no protocol of this port", "remote", conn.RemoteAddr().String())
		m.closeConn(conn)
	}
}

func (m *Mux) acceptTLS(raw net.Conn, replay net.Conn, leave func(), stop func() bool) {
	var who peerIdentity
	tc := tls.Server(replay, m.serverTLS(&who))
	if err := tc.HandshakeContext(m.ctx); err != nil {
		m.count.refusedTLS.Add(1)
		m.refusedTLS(raw.RemoteAddr(), err)
		lingerClose(raw, m.opt.Timing.Linger)
		return
	}
	leave()
	if !stop() { // the Mux is closing, and conn with it
		return
	}
	if who.proto == wire.ALPNGateway {
		m.http.serve(raw, tc, &who)
		return
	}
	m.acceptPeer(raw, tc, &who)
}

// refusedTLS logs a failed handshake with the key that was presented, and shows
// it at the link whose address the connection came from: the other end learns no
// more than that it was refused.
func (m *Mux) refusedTLS(remote net.Addr, err error) {
	var ke *keyError
	if !errors.As(err, &ke) {
		m.log.Debug("refused a TLS connection", "remote", remote.String(), "error", err)
		return
	}
	m.log.Warn("refused a key", "remote", remote.String(), "key", KeyString(ke.presented), "error", ke.reason)
	host, _, splitErr := net.SplitHostPort(remote.String())
	if splitErr != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.links {
		for _, a := range l.cfg.Addresses {
			if h, _, err := net.SplitHostPort(a); err == nil && h == host && !l.cfg.Dial {
				l.note("peer at " + host + " presented key " + KeyString(ke.presented) + ", expected " + KeyString(l.cfg.Key))
			}
		}
	}
}

// acceptStream reads an opening and gives the connection to its session. A
// refused opening gets no answer and does not harm the session: anybody can
// repeat one that was overheard.
func (m *Mux) acceptStream(conn net.Conn, first byte) {
	var b [wire.OpeningSize]byte
	b[0] = first
	if _, err := io.ReadFull(conn, b[1:len(wire.Magic)]); err != nil || string(b[:len(wire.Magic)]) != wire.Magic {
		if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			m.count.refusedSilent.Add(1)
		} else {
			m.count.refusedBytes.Add(1)
		}
		m.closeConn(conn)
		return
	}
	if _, err := io.ReadFull(conn, b[len(wire.Magic):]); err != nil {
		m.count.refusedSilent.Add(1)
		m.closeConn(conn)
		return
	}
	o, err := wire.ParseOpening(&b)
	if err == nil {
		m.mu.Lock()
		s := m.accepted[o.Session]
		m.mu.Unlock()
		if s == nil {
			err = errors.New("no such session")
		} else {
			err = s.acceptStream(conn, o, &b)
		}
	}
	if err != nil {
		m.count.refusedOpenings.Add(1)
		m.log.Debug("refused a data stream", "remote", conn.RemoteAddr().String(), "error", err)
		m.closeConn(conn)
	}
}

// closeConn closes a connection on which nothing is at stake any more.
func (m *Mux) closeConn(c net.Conn) {
	if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		m.log.Debug("close a connection", "error", err)
	}
}

// lingerClose lets the last words (a TLS alert, a GOODBYE) arrive: closing with
// unread bytes in the receive buffer would send a reset that overtakes them.
func lingerClose(c net.Conn, d time.Duration) {
	defer c.Close() //nolint:errcheck // nothing is at stake any more
	t, ok := c.(*net.TCPConn)
	if !ok || t.CloseWrite() != nil || t.SetDeadline(time.Now().Add(d)) != nil {
		return
	}
	// Until the peer closes, or the deadline.
	_, _ = io.Copy(io.Discard, t)
}

// replayConn gives back what was read to decide.
type replayConn struct {
	net.Conn
	prefix []byte
}

func (c *replayConn) Read(p []byte) (int, error) {
	if len(c.prefix) > 0 {
		n := copy(p, c.prefix)
		c.prefix = c.prefix[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// IsTemporary says of an error of accept whether it may work again: descriptors or memory ran out,
// or the connection was gone before we took it.
func IsTemporary(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
