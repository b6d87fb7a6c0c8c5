package conformance

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// Target is the implementation under test. It must have a link to node
// ClientNode, which it does not dial, with the key of Client trusted as a peer.
type Target struct {
	Addr       string            // host:port
	Node       string            // its node name
	Key        ed25519.PublicKey // its key
	Client     ed25519.PrivateKey
	ClientNode string
	Encryption wire.Encryption    // of the link
	Engines    *Engines           // for RunTransfers and RunGateway
	Gateway    ed25519.PrivateKey // for RunGateway: a key that is trusted as a gateway's
	// Patience bounds each wait; it must exceed the implementation's bound on
	// unauthenticated connections. Zero means 10 s.
	Patience time.Duration
}

func (g *Target) patience() time.Duration {
	if g.Patience == 0 {
		return 10 * time.Second
	}
	return g.Patience
}

func (g *Target) dial(t *testing.T) net.Conn {
	t.Helper()
	var d net.Dialer
	ctx, cancel := context.WithTimeout(t.Context(), g.patience())
	defer cancel()
	c, err := d.DialContext(ctx, "tcp", g.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(g.patience())); err != nil {
		t.Fatal(err)
	}
	return c
}

// tls handshakes with a key and ALPN protocols. The error is that of our side,
// which in TLS 1.3 does not yet know the other's verdict.
func (g *Target) tls(t *testing.T, key ed25519.PrivateKey, protos ...string) (*tls.Conn, error) {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(g.dial(t), &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protos,
		Certificates:       []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		InsecureSkipVerify: true, //nolint:gosec // the key is compared below
		VerifyConnection: func(cs tls.ConnectionState) error {
			if pub, ok := cs.PeerCertificates[0].PublicKey.(ed25519.PublicKey); !ok || !pub.Equal(g.Key) {
				return errors.New("the implementation presented another key")
			}
			return nil
		},
	})
	return c, c.HandshakeContext(t.Context())
}

// client is a control session as the dialler.
type client struct {
	t    *testing.T
	g    *Target
	conn *tls.Conn
	id   wire.ID
	buf  []byte
}

func newID(t *testing.T) (id wire.ID) {
	t.Helper()
	if _, err := rand.Read(id[:]); err != nil {
		t.Fatal(err)
	}
	return id
}

// connect goes as far as TLS.
func (g *Target) connect(t *testing.T) *client {
	t.Helper()
	conn, err := g.tls(t, g.Client, wire.ALPNPeer)
	if err != nil {
		t.Fatalf("handshake: %v", err)
	}
	return &client{t: t, g: g, conn: conn, id: newID(t)}
}

func (c *client) hello(streams uint8) *wire.Hello {
	return &wire.Hello{Version: wire.Version, Node: c.g.ClientNode, Instance: newID(c.t), Session: c.id, Encryption: c.g.Encryption, Streams: streams}
}

// session connects and exchanges HELLOs.
func (g *Target) session(t *testing.T, streams uint8) *client {
	t.Helper()
	c := g.connect(t)
	c.send(c.hello(streams).Append(nil))
	c.expectHello()
	return c
}

func (c *client) expectHello() {
	c.t.Helper()
	m, err := c.read()
	h, ok := m.(*wire.Hello)
	if !ok {
		c.t.Fatalf("the first frame is %v, %v", m, err)
	}
	if h.Version != wire.Version || h.Node != c.g.Node || h.Instance.IsZero() || !h.Session.IsZero() || h.Encryption != c.g.Encryption {
		c.t.Errorf("HELLO %+v", h)
	}
}

func (c *client) send(frames ...[]byte) {
	c.t.Helper()
	for _, b := range frames {
		if _, err := c.conn.Write(b); err != nil {
			c.t.Fatalf("write: %v", err)
		}
	}
}

func (c *client) read() (wire.Message, error) {
	for {
		m, n, err := wire.Parse(c.buf)
		if err == nil {
			c.buf = c.buf[n:]
			return m, nil
		}
		if !errors.Is(err, wire.ErrShort) {
			return nil, err
		}
		b := make([]byte, 4096)
		n, err = c.conn.Read(b)
		c.buf = append(c.buf, b[:n]...)
		if n == 0 && err != nil {
			return nil, err
		}
	}
}

// await reads, answering nothing, until match is content.
func (c *client) await(what string, match func(m wire.Message) bool) {
	c.t.Helper()
	for {
		m, err := c.read()
		if err != nil {
			c.t.Fatalf("no %s: %v", what, err)
		}
		if g, ok := m.(*wire.Goodbye); ok && !match(m) {
			c.t.Fatalf("no %s, but GOODBYE %s: %s", what, g.Code, g.Reason)
		}
		if match(m) {
			return
		}
	}
}

// alive says that the session still answers, after everything sent so far.
func (c *client) alive() {
	c.t.Helper()
	id := newID(c.t)
	nonce := uint64(id[0])<<8 | uint64(id[1]) | 1<<40
	c.send((&wire.Ping{Nonce: nonce}).Append(nil))
	c.await("PONG", func(m wire.Message) bool {
		p, ok := m.(*wire.Pong)
		return ok && p.Nonce == nonce
	})
}

// ends says that the implementation says GOODBYE with the code and closes.
func (c *client) ends(code wire.Code) {
	c.t.Helper()
	c.await("GOODBYE "+code.String(), func(m wire.Message) bool {
		g, ok := m.(*wire.Goodbye)
		return ok && g.Code == code
	})
	for {
		if _, err := c.read(); err != nil {
			if timedOut(err) {
				c.t.Error("the connection stays open after GOODBYE")
			}
			return
		}
	}
}

// bye ends the session from our side and waits until it is closed.
func (c *client) bye() {
	c.t.Helper()
	c.send((&wire.Goodbye{Code: wire.CodeShutdown, Reason: "the check is over"}).Append(nil))
	for {
		if _, err := c.read(); err != nil {
			if timedOut(err) {
				c.t.Error("the connection stays open after our GOODBYE")
			}
			return
		}
	}
}

func timedOut(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// closed says that the other end closes without a word.
func closed(t *testing.T, what string, c net.Conn) {
	t.Helper()
	b, err := io.ReadAll(c)
	if len(b) > 0 || timedOut(err) {
		t.Errorf("%s: got %d bytes, %v; it must be closed", what, len(b), err)
	}
}
