package transport

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

func TestNewSessionReplacesTheOld(t *testing.T) {
	noLeaks(t)
	b := newNode(t, "b", nil)
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	// Two daemons with one identity: the second is a restart that the first did
	// not notice.
	again := func(o *Options) { o.Identity = id; o.Timing.BackoffMin, o.Timing.BackoffMax = time.Hour, time.Hour }
	a1, a2 := newNode(t, "a", again), newNode(t, "a", again)
	a1.id, a2.id = id, id
	connect(a1, b, api.EncryptionAEAD, 2, nil)
	first := a1.rec.await(t, "up").s
	b.rec.await(t, "up")
	a2.pins.set(pin{b.id.Public(), api.RolePeer, "link-b", "b"})
	a2.mux.SetPeer(PeerConfig{Link: "l", Node: "b", Key: b.id.Public(), Addresses: []string{b.addr}, Dial: true, Encryption: api.EncryptionAEAD, Streams: 1})
	second := a2.rec.await(t, "up").s
	if e := <-b.rec.events; e.what != "down" || e.s.ID() != first.ID() || !isEnd(e.err, wire.CodeReplaced, false) {
		t.Errorf("%s %v", e.what, e.err)
	}
	if e := <-b.rec.events; e.what != "up" || e.s.ID() != second.ID() {
		t.Errorf("%s", e.what)
	}
	if e := a1.rec.await(t, "down"); !isEnd(e.err, wire.CodeReplaced, true) {
		t.Error(e.err)
	}
	if s, ok := b.mux.Session("a"); !ok || s.ID() != second.ID() {
		t.Error("the old session is the current one")
	}
}

// A session whose streams do not open was never up: the Handler hears nothing of
// it, the operator does.
func TestSetupThatFails(t *testing.T) {
	noLeaks(t)
	a, b, _ := tapped(t, api.EncryptionAEAD, func(c *proxied, b []byte) {
		if c.sent.Len() == 0 && bytes.HasPrefix(b, []byte(wire.Magic)) {
			b[len(b)-1] ^= 1
		}
	})
	lastError(t, a, "cannot open data stream 0: it was not answered")
	lastError(t, b, "the peer ended the session", "cannot open data stream 0")
	for _, n := range []*node{a, b} {
		if c := n.mux.Counters(); len(n.rec.events) != 0 || c.SessionsUp != 0 || c.SessionsDown != 0 {
			t.Errorf("%s: %d events, %+v", n.name, len(n.rec.events), c)
		}
	}
	if n := b.mux.Counters().RefusedOpenings; n == 0 {
		t.Error("not counted")
	}
}

func TestConfigurationChanges(t *testing.T) {
	noLeaks(t)
	a, b := pair(t, api.EncryptionAEAD, 1, nil)
	a.rec.await(t, "up")
	b.rec.await(t, "up")
	sent, _ := a.mux.Session("b")
	sendOne(t, sent, []byte("12345"))
	connect(a, b, api.EncryptionAEAD, 1, nil) // equal
	select {
	case <-sent.Done():
		t.Fatal("an equal configuration ended the session")
	default:
	}
	connect(a, b, api.EncryptionNone, 3, nil)
	a.rec.await(t, "down")
	eventually(t, "the new configuration is in use", func() bool {
		s, ok := a.mux.Session("b")
		return ok && s.Encryption() == api.EncryptionNone
	})
	if st := a.mux.Status("l"); st.BytesSent != 5 || st.Encryption != api.EncryptionNone {
		t.Errorf("status %+v", st)
	}
	a.mux.RemovePeer("b")
	a.rec.await(t, "down")
	if st := a.mux.Status("l"); st != (LinkState{}) {
		t.Errorf("status of a removed link: %+v", st)
	}
	if _, ok := a.mux.Session("b"); ok {
		t.Error("a session of a removed link")
	}
}

func TestEnginesAnnouncements(t *testing.T) {
	noLeaks(t)
	list := []wire.Engine{{Name: "prefill-0", Ranks: 2, FingerprintJSON: "{}"}}
	a := newNode(t, "a", func(o *Options) { o.Engines = func() []wire.Engine { return list } })
	b := newNode(t, "b", nil)
	connect(a, b, api.EncryptionAEAD, 1, nil)
	sb, sa := b.rec.await(t, "up").s, a.rec.await(t, "up").s
	if got := sb.Engines(); len(got) != 1 || got[0] != list[0] {
		t.Errorf("announced %v", got)
	}
	if err := sa.Send(&wire.Engines{}); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.rec.await(t, "message").m.(*wire.Engines); !ok || len(sb.Engines()) != 0 {
		t.Errorf("still %v", sb.Engines())
	}
}

func TestProbe(t *testing.T) {
	noLeaks(t)
	a, b := pair(t, api.EncryptionAEAD, 3, nil)
	a.rec.await(t, "up")
	b.rec.await(t, "up")
	for _, n := range []int64{1, wire.MaxChunk, 3*wire.MaxChunk + 5} {
		for _, from := range []*node{a, b} {
			to := map[*node]string{a: "b", b: "a"}[from]
			r, err := from.mux.Probe(context.Background(), to, n)
			if err != nil || !r.OK || r.Bytes != n || r.Seconds <= 0 || r.Encryption != api.EncryptionAEAD || r.Transport != "tcp" {
				t.Errorf("%d bytes: %+v, %v", n, r, err)
			}
		}
	}
	if st := a.mux.Status("l"); st.BytesSent != 0 || st.BytesReceived != 0 {
		t.Errorf("probes count as KV: %+v", st)
	}
	s := a.mux.sessionUp("b")
	if _, ok := s.probes.begin(wire.ID{1}); !ok {
		t.Fatal("no probe runs")
	}
	if _, err := a.mux.Probe(context.Background(), "b", 1); !errors.Is(err, ErrProbing) {
		t.Error(err)
	}
	s.probes.end()
	for _, n := range []int64{0, -1, wire.MaxProbe + 1} {
		if _, err := a.mux.Probe(context.Background(), "b", n); err == nil {
			t.Errorf("a probe of %d bytes", n)
		}
	}
	if _, err := a.mux.Probe(context.Background(), "nobody", 1); !errors.Is(err, ErrNoSession) {
		t.Error(err)
	}
}

func TestProbeFindsOtherContent(t *testing.T) {
	noLeaks(t)
	a, b := pair(t, api.EncryptionAEAD, 1, nil)
	a.rec.await(t, "up")
	b.rec.await(t, "up")
	s := a.mux.sessionUp("b")
	answer, _ := s.probes.begin(wire.ID{5})
	if err := s.Send(&wire.Probe{ID: wire.ID{5}, Bytes: 10, Hash: probeHash(wire.ID{6}, 10)}); err != nil {
		t.Fatal(err)
	}
	if err := s.sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := s.sendProbe(context.Background(), wire.ID{5}, 10); err != nil {
		t.Fatal(err)
	}
	if r := <-answer; r.OK || r.Reason == "" {
		t.Errorf("%+v", r)
	}
}

func TestProbeDigestsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.Int64Range(1, 6*wire.MaxChunk).Draw(t, "bytes")
		id := wire.ID{byte(bytes)}
		n := probeChunks(bytes)
		p := newProbeDigests(bytes)
		perm := rapid.Permutation(indices(n)).Draw(t, "order")
		for k, i := range perm {
			b := make([]byte, probeLength(bytes, i))
			fillProbe(b, id, i)
			h := wire.ChunkHeader{Kind: wire.KindProbe, Offset: int64(i) * wire.MaxChunk, Length: len(b)}
			if got, err := p.index(h); err != nil || got != i {
				t.Fatalf("index %d, %v", got, err)
			}
			complete, err := p.add(i, sum(b))
			if err != nil || complete != (k == n-1) {
				t.Fatalf("chunk %d: %v, %v", i, complete, err)
			}
		}
		if p.root() != probeHash(id, bytes) {
			t.Fatal("the order changes the hash")
		}
		if _, err := p.add(0, sum(nil)); err == nil {
			t.Fatal("a repeated chunk was taken")
		}
		for _, h := range []wire.ChunkHeader{
			{Offset: 1, Length: probeLength(bytes, 0)}, {Offset: bytes, Length: 1},
			{Offset: 0, Length: probeLength(bytes, 0) + 1}, {Offset: 0, Length: probeLength(bytes, 0), Rank: 1},
		} {
			if _, err := p.index(h); err == nil {
				t.Fatalf("%+v was taken", h)
			}
		}
	})
}

func TestDialErrors(t *testing.T) {
	noLeaks(t)
	a := newNode(t, "a", func(o *Options) { o.Timing.Setup = 50 * time.Millisecond })
	other, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	a.pins.set(pin{other.Public(), api.RolePeer, "l", "b"})
	dial := func(addresses ...string) {
		a.mux.RemovePeer("b")
		a.mux.SetPeer(PeerConfig{Link: "l", Node: "b", Key: other.Public(), Addresses: addresses, Dial: true, Streams: 1})
	}
	dead := closedPort(t)
	silent := listenerThat(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1<<16)); _, _ = c.Read(make([]byte, 1)) })
	ssh := listenerThat(t, func(c net.Conn) { _, _ = c.Write([]byte("SSH-2.0-x\r\n")); _, _ = c.Read(make([]byte, 1<<16)) })
	dial(dead, silent)
	lastError(t, a, dead+" refused the connection", "timed out: no answer from "+silent)
	dial(ssh)
	lastError(t, a, "peer at "+ssh, "does not look like a TLS handshake")
	dial()
	lastError(t, a, "has no address")
	if c := a.mux.Counters(); c.DialErrors == 0 || c.Dials < c.DialErrors {
		t.Errorf("%+v", c)
	}
}

func TestSilentPeerIsNoticed(t *testing.T) {
	noLeaks(t)
	stall := make(chan struct{})
	var p *proxy
	a := newNode(t, "a", nil)
	b := newNode(t, "b", func(o *Options) { o.Timing.Idle = 300 * time.Millisecond })
	connect(a, b, api.EncryptionAEAD, 1, func(target string) string {
		p = newProxy(t, target)
		return p.ln.Addr().String()
	})
	a.rec.await(t, "up")
	b.rec.await(t, "up")
	// From now on nothing passes to b.
	p.mu.Lock()
	p.tamper = func(*proxied, []byte) { p.mu.Unlock(); <-stall; p.mu.Lock() }
	p.mu.Unlock()
	defer close(stall)
	if e := b.rec.await(t, "down"); !strings.Contains(e.err.Error(), "heard nothing from node a for 300ms") {
		t.Error(e.err)
	}
	if e := a.rec.await(t, "down"); !isEnd(e.err, wire.CodeProtocol, true) || !strings.Contains(e.err.Error(), "heard nothing") {
		t.Error(e.err)
	}
}

func TestOverflowEndsTheSession(t *testing.T) {
	noLeaks(t)
	hold := make(chan struct{})
	a := newNode(t, "a", nil)
	b := newNode(t, "b", func(o *Options) { o.Handler = &blocker{recorder: newRecorder(), hold: hold} })
	connect(a, b, api.EncryptionAEAD, 1, nil)
	s := a.rec.await(t, "up").s
	reason := strings.Repeat("x", 60000)
	var err error
	for range 10000 {
		if err = s.Send(&wire.Abort{Reason: reason}); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "queue of the control connection is full") {
		t.Errorf("600 MB were queued: %v", err)
	}
	close(hold)
	a.rec.await(t, "down")
	if err := s.Send(&wire.Goodbye{Reason: strings.Repeat("x", 70000)}); err == nil {
		t.Error("sent after the end")
	}
}

// blocker does not return from Message until released.
type blocker struct {
	*recorder
	hold chan struct{}
}

func (b *blocker) Message(Session, wire.Message) { <-b.hold }

func TestStuckReceiverEndsTheSession(t *testing.T) {
	noLeaks(t)
	a := newNode(t, "a", func(o *Options) { o.Timing.Write = 100 * time.Millisecond })
	hold := make(chan struct{})
	b := newNode(t, "b", nil)
	b.rec.target = func(wire.ChunkHeader) ([][]byte, bool, error) { <-hold; return nil, false, nil }
	connect(a, b, api.EncryptionNone, 1, nil)
	s := a.rec.await(t, "up").s
	chunk := make([]byte, wire.MaxChunk)
	var err error
	for range 10000 {
		if err = s.SendChunk(context.Background(), 0, wire.ID{1}, 0, [][]byte{chunk}); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "stood still") {
		t.Errorf("%v", err)
	}
	close(hold)
	a.rec.await(t, "down")
}

func TestSendChunkGivesUpWaitingForAStream(t *testing.T) {
	noLeaks(t)
	a, _ := pair(t, api.EncryptionAEAD, 1, nil)
	s := a.rec.await(t, "up").s
	ours := a.mux.sessionUp("b")
	st := <-ours.free
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.SendChunk(ctx, 0, wire.ID{}, 0, [][]byte{{1}}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	ours.free <- st
	sendOne(t, s, []byte("x"))
}

func TestBackoff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := backoff{min: 100 * time.Millisecond, max: 3 * time.Second}
		for range 12 {
			d := b.next(0, rapid.Float64Range(0, 0.999).Draw(t, "random"))
			if d < b.last/2 || d > b.last || b.last > b.max || b.last < b.min {
				t.Fatalf("wait %v of %v", d, b.last)
			}
		}
		if b.last != b.max {
			t.Fatalf("it grew to %v only", b.last)
		}
		if d := b.next(time.Minute, 0); d != b.min/2 {
			t.Fatalf("after a long session: %v", d)
		}
	})
}

func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}

// listenerThat serves each connection with f, then closes it.
func listenerThat(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			f(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return ln.Addr().String()
}

func indices(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func sum(b []byte) [sha256.Size]byte { return sha256.Sum256(b) }
