package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

func tcp(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// isClosed waits until the other end has closed c, having said nothing.
func isClosed(t *testing.T, what string, c net.Conn) {
	t.Helper()
	n, err := c.Read(make([]byte, 1))
	var ne net.Error
	if n != 0 || err == nil || errors.As(err, &ne) && ne.Timeout() {
		t.Errorf("%s: read %d, %v", what, n, err)
	}
}

func TestSilenceAndNoiseAreClosed(t *testing.T) {
	noLeaks(t)
	n := newNode(t, "n", func(o *Options) { o.Timing.Unauthenticated = time.Second })
	conns := map[string]net.Conn{"silence": tcp(t, n.addr)}
	for _, first := range []string{"GET / HTTP/1.1\r\n", "MOAX", "\x00", "MOAI\x01too short", "\x16\x03\x01", "MOAI" + strings.Repeat("\x00", wire.OpeningSize)} {
		conns[first] = tcp(t, n.addr)
		if _, err := io.WriteString(conns[first], first); err != nil {
			t.Fatal(err)
		}
	}
	for first, c := range conns {
		isClosed(t, first, c)
	}
	c := n.mux.Counters()
	if c.RefusedBytes != 3 || c.RefusedSilent != 2 || c.RefusedTLS != 1 || c.RefusedOpenings != 1 {
		t.Errorf("%+v", c)
	}
}

func TestUnauthenticatedFloodIsBounded(t *testing.T) {
	noLeaks(t)
	const most = 4
	a := newNode(t, "a", nil)
	b := newNode(t, "b", func(o *Options) { o.MaxUnauthenticated = most; o.Timing.Unauthenticated = time.Minute })
	var conns []net.Conn
	for range 3 * most {
		conns = append(conns, tcp(t, b.addr))
	}
	// All but the newest are pushed out, long before their time.
	for _, c := range conns[:2*most] {
		isClosed(t, "an old connection", c)
	}
	eventually(t, "the rest was accepted", func() bool { return b.mux.Counters().Evicted >= 2*most })
	if n := len(b.mux.gate.slots); n > most {
		t.Errorf("%d unauthenticated connections", n)
	}
	if n := b.mux.Counters().Evicted; n != 2*most {
		t.Errorf("%d evicted", n)
	}
	// A peer comes through all the same, and then takes no slot.
	connect(a, b, api.EncryptionAEAD, 2, nil)
	a.rec.await(t, "up")
	b.rec.await(t, "up")
	eventually(t, "authenticated connections left the gate", func() bool { return len(b.mux.gate.slots) < most })
}

func gatewayTLS(t *testing.T, id Identity, server *node, protos ...string) (*tls.Conn, error) {
	t.Helper()
	cert, err := id.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(tcp(t, server.addr), &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, NextProtos: protos, InsecureSkipVerify: true,
	})
	if err := c.HandshakeContext(context.Background()); err != nil {
		return nil, err
	}
	return c, nil
}

func TestGatewayRequests(t *testing.T) {
	noLeaks(t)
	g, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	entered, left := make(chan string, 10), make(chan struct{}, 10)
	n := newNode(t, "n", func(o *Options) {
		o.HTTP = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name, _ := GatewayName(r.Context())
			if r.URL.Path == "/hang" {
				entered <- name
				<-r.Context().Done()
				<-time.After(50 * time.Millisecond) // what a handler still has to tidy up
				left <- struct{}{}
				return
			}
			_, _ = io.WriteString(w, "hello "+name)
		})
	})
	n.pins.set(pin{g.Public(), api.RoleGateway, "front", ""})
	client := &http.Client{Transport: &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
		return gatewayTLS(t, g, n, wire.ALPNGateway)
	}}}
	defer client.CloseIdleConnections()
	get := func(path string) (string, error) {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://n"+path, nil)
		if err != nil {
			return "", err
		}
		r, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer func() { _ = r.Body.Close() }()
		b, err := io.ReadAll(r.Body)
		return string(b), err
	}
	for range 3 {
		if s, err := get("/"); err != nil || s != "hello front" {
			t.Fatalf("%q, %v", s, err)
		}
	}
	// Removing the pin ends what is running, and lets nothing new in.
	failed := make(chan error, 1)
	go func() { _, err := get("/hang"); failed <- err }()
	if name := <-entered; name != "front" {
		t.Error(name)
	}
	n.pins.set()
	n.mux.PinsChanged()
	<-left
	if err := <-failed; err == nil {
		t.Error("the request was answered")
	}
	if s, err := get("/"); err == nil {
		t.Errorf("got %q without a pin", s)
	}
	// Close waits for handlers, after ending their requests.
	n.pins.set(pin{g.Public(), api.RoleGateway, "front", ""})
	go func() { _, err := get("/hang"); failed <- err }()
	<-entered
	if err := n.mux.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-left:
	default:
		t.Error("a handler outlived Close")
	}
	<-failed
}

func TestRolesDoNotMix(t *testing.T) {
	noLeaks(t)
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, "n", func(o *Options) { o.HTTP = http.NotFoundHandler() })
	for _, c := range []struct {
		role   api.Role
		protos []string
	}{
		{api.RolePeer, []string{wire.ALPNGateway}},
		{api.RoleGateway, []string{wire.ALPNPeer}},
		{api.RoleGateway, nil},
		{api.RolePeer, []string{"h2"}},
	} {
		n.pins.set(pin{id.Public(), c.role, "x", "x"})
		tc, err := gatewayTLS(t, id, n, c.protos...)
		if err == nil { // the server judges after our side is done
			_, err = tc.Read(make([]byte, 1))
		}
		var op *net.OpError
		if !errors.As(err, &op) || op.Op != "remote error" {
			t.Errorf("%s with %q: %v", c.role, c.protos, err)
		}
	}
	// TLS 1.2 is not spoken.
	cert, err := id.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	old := tls.Client(tcp(t, n.addr), &tls.Config{MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{wire.ALPNPeer}, InsecureSkipVerify: true})
	if err := old.HandshakeContext(context.Background()); err == nil {
		t.Error("TLS 1.2 was taken")
	}
}

func TestCloseEndsWhatHangs(t *testing.T) {
	noLeaks(t)
	n := newNode(t, "n", func(o *Options) { o.Timing.Unauthenticated = time.Hour })
	for range 3 {
		tcp(t, n.addr)
	}
	hung := tcp(t, n.addr)
	if _, err := io.WriteString(hung, "MOAI\x01"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all were accepted", func() bool { return n.mux.Counters().Accepted == 4 })
	n.mux.SetPeer(PeerConfig{Link: "l", Node: "b", Key: n.id.Public(), Addresses: []string{closedPort(t)}, Dial: true})
	if err := n.mux.Close(); err != nil {
		t.Error(err)
	}
	isClosed(t, "a half opening", hung)
	n.mux.SetPeer(PeerConfig{Link: "l", Node: "c", Dial: true}) // of no effect
	if n.mux.Status("l") != (LinkState{}) && n.mux.Status("l").Up {
		t.Error("a closed transport came up")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.mux.Serve(context.Background(), ln); err == nil {
		t.Error("a closed transport serves")
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	noLeaks(t)
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	m := New(Options{Node: "n", Identity: id, Pins: new(pinTable), Handler: newRecorder()})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Serve(ctx, ln) }()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	// No key: refused with a reason, where it is needed.
	m = New(Options{Node: "n", Pins: new(pinTable), Handler: newRecorder()})
	ln, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Serve(context.Background(), ln); err == nil || !strings.Contains(err.Error(), "no key") {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
