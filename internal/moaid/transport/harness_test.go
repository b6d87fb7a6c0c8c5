package transport

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// patience bounds each wait of a test; it is reached only by a failure.
const patience = 20 * time.Second

type pin struct {
	key        ed25519.PublicKey
	role       api.Role
	name, node string
}

type pinTable struct {
	mu   sync.Mutex
	pins []pin
}

func (p *pinTable) Allowed(pub ed25519.PublicKey, role api.Role) (string, string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.pins {
		if e.role == role && e.key.Equal(pub) {
			return e.name, e.node, true
		}
	}
	return "", "", false
}

func (p *pinTable) set(pins ...pin) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pins = pins
}

// event is one call of the Handler.
type event struct {
	what string // up, down, message, done
	s    Session
	m    wire.Message
	h    wire.ChunkHeader
	err  error
}

// recorder is a Handler that keeps what arrives; memory is the target of chunks.
type recorder struct {
	events chan event
	mu     sync.Mutex
	memory []byte // nil: every chunk is unknown
	target func(h wire.ChunkHeader) ([][]byte, bool, error)
}

func newRecorder() *recorder { return &recorder{events: make(chan event, 4096)} }

func (r *recorder) SessionUp(s Session)               { r.events <- event{what: "up", s: s} }
func (r *recorder) SessionDown(s Session, err error)  { r.events <- event{what: "down", s: s, err: err} }
func (r *recorder) Message(s Session, m wire.Message) { r.events <- event{what: "message", s: s, m: m} }
func (r *recorder) ChunkDone(s Session, h wire.ChunkHeader, err error) {
	r.events <- event{what: "done", s: s, h: h, err: err}
}

func (r *recorder) ChunkTarget(_ Session, h wire.ChunkHeader) ([][]byte, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.target != nil {
		return r.target(h)
	}
	if r.memory == nil {
		return nil, false, nil
	}
	if h.Offset+int64(h.Length) > int64(len(r.memory)) {
		return nil, false, &wire.Error{Code: wire.CodeProtocol, Reason: "outside the granted ranges"}
	}
	d := r.memory[h.Offset:][:h.Length]
	half := len(d) / 2
	return [][]byte{d[:half], d[half:]}, true, nil
}

// await takes events until one of the kind comes.
func (r *recorder) await(t testing.TB, what string) event {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case e := <-r.events:
			if e.what == what {
				return e
			}
		case <-timeout:
			t.Fatalf("no event %q", what)
		}
	}
}

// node is a Mux with what it needs.
type node struct {
	name string
	id   Identity
	pins *pinTable
	rec  *recorder
	mux  *Mux
	ln   net.Listener
	addr string
}

var quick = Timing{
	Unauthenticated: 5 * time.Second, Setup: 10 * time.Second, Ping: 50 * time.Millisecond, Idle: 10 * time.Second, Write: 10 * time.Second,
	Linger: 200 * time.Millisecond, BackoffMin: 5 * time.Millisecond, BackoffMax: 20 * time.Millisecond,
}

func newNode(t testing.TB, name string, change func(*Options)) *node {
	t.Helper()
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	n := &node{name: name, id: id, pins: new(pinTable), rec: newRecorder()}
	opt := Options{Node: name, Instance: wire.ID{1, name[0]}, Identity: id, Pins: n.pins, Handler: n.rec, Timing: quick}
	if change != nil {
		change(&opt)
	}
	n.mux = New(opt)
	n.ln, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.addr = n.ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- n.mux.Serve(context.Background(), n.ln) }()
	t.Cleanup(func() {
		if err := n.mux.Close(); err != nil {
			t.Errorf("close %s: %v", name, err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve %s: %v", name, err)
		}
	})
	return n
}

// pair makes nodes a (dials) and b, which pin each other. via, if given, is the
// address that a dials.
func pair(t testing.TB, enc api.Encryption, streams int, via func(target string) string) (a, b *node) {
	t.Helper()
	a, b = newNode(t, "a", nil), newNode(t, "b", nil)
	connect(a, b, enc, streams, via)
	return a, b
}

func connect(a, b *node, enc api.Encryption, streams int, via func(string) string) {
	trust(a, b)
	addr := b.addr
	if via != nil {
		addr = via(addr)
	}
	b.mux.SetPeer(PeerConfig{Link: "l", Node: "a", Key: a.id.Public(), Addresses: []string{a.addr}, Encryption: enc, Streams: streams})
	a.mux.SetPeer(PeerConfig{Link: "l", Node: "b", Key: b.id.Public(), Addresses: []string{addr}, Dial: true, Encryption: enc, Streams: streams})
}

func trust(a, b *node) {
	a.pins.set(pin{b.id.Public(), api.RolePeer, "link-b", "b"})
	b.pins.set(pin{a.id.Public(), api.RolePeer, "link-a", "a"})
}

// eventually waits for a condition that has no channel. It yields, with a short
// timer, and never decides by time.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-tick.C
	}
}

// noLeaks fails if goroutines are left once everything of the test was closed.
// It must be called first, so that its check runs last.
func noLeaks(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		deadline := time.Now().Add(patience)
		for runtime.NumGoroutine() > before {
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<20)
				t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
			}
			runtime.Gosched()
		}
	})
}

// proxy copies connections to a target, one recorded buffer a direction. tamper
// may change what flows to the target.
type proxy struct {
	ln     net.Listener
	target string
	wg     sync.WaitGroup

	mu     sync.Mutex
	conns  []*proxied
	tamper func(c *proxied, b []byte) // of bytes to the target, in order
}

type proxied struct {
	client, server net.Conn
	sent           bytes.Buffer // client to server
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, target: target}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		for _, c := range p.all() {
			_ = c.client.Close()
			_ = c.server.Close()
		}
		p.wg.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = c.Close()
			continue
		}
		x := &proxied{client: c, server: s}
		p.mu.Lock()
		p.conns = append(p.conns, x)
		p.mu.Unlock()
		p.wg.Go(func() { _, _ = io.Copy(c, s); _ = c.Close(); _ = s.Close() })
		p.wg.Go(func() { _, _ = io.Copy(recordTo{p, x}, c); _ = c.Close(); _ = s.Close() })
	}
}

type recordTo struct {
	p *proxy
	x *proxied
}

func (r recordTo) Write(b []byte) (int, error) {
	r.p.mu.Lock()
	if r.p.tamper != nil {
		r.p.tamper(r.x, b)
	}
	r.x.sent.Write(b)
	r.p.mu.Unlock()
	return r.x.server.Write(b)
}

func (p *proxy) all() []*proxied {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*proxied(nil), p.conns...)
}

// isStream says whether the connection is a data stream.
func (x *proxied) isStream() bool { return bytes.HasPrefix(x.sent.Bytes(), []byte(wire.Magic)) }
