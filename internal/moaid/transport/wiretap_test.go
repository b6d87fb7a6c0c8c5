package transport

import (
	"bytes"
	"context"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

func tapped(t *testing.T, enc api.Encryption, tamper func(c *proxied, b []byte)) (a, b *node, p *proxy) {
	t.Helper()
	a, b = pair(t, enc, 1, func(target string) string {
		p = newProxy(t, target)
		p.tamper = tamper
		return p.ln.Addr().String()
	})
	return a, b, p
}

func sendOne(t *testing.T, s Session, plain []byte) {
	t.Helper()
	if err := s.SendChunk(context.Background(), 0, wire.ID{9}, 0, [][]byte{plain}); err != nil {
		t.Fatal(err)
	}
}

// On the wire, the payload is there to be read with encryption none, and is not
// with aead. What control says is never there.
func TestEncryptionOnTheWire(t *testing.T) {
	noLeaks(t)
	for _, enc := range []api.Encryption{api.EncryptionAEAD, api.EncryptionNone} {
		a, b, p := tapped(t, enc, nil)
		s := a.rec.await(t, "up").s
		plain := pseudo(100_000, 3)
		b.rec.memory = make([]byte, len(plain))
		if err := s.Send(&wire.Abort{ID: wire.ID{4}, Reason: "a reason that is a secret"}); err != nil {
			t.Fatal(err)
		}
		sendOne(t, s, plain)
		// The chunk's arrival may be told before or after the frame's.
		eventually(t, "the frame arrived", func() bool { return b.mux.Counters().FramesReceived >= 2 })
		if e := b.rec.await(t, "done"); e.err != nil || !bytes.Equal(b.rec.memory, plain) {
			t.Fatalf("not received: %v", e.err)
		}
		p.mu.Lock()
		streams, found := 0, 0
		for _, c := range p.conns {
			if bytes.Contains(c.sent.Bytes(), []byte("a reason that is a secret")) {
				t.Error("control is readable")
			}
			if !c.isStream() {
				continue
			}
			streams++
			for off := 0; off+64 <= len(plain); off += 64 {
				if bytes.Contains(c.sent.Bytes(), plain[off:off+64]) {
					found++
				}
			}
		}
		p.mu.Unlock()
		want := 0
		if enc == api.EncryptionNone {
			want = len(plain) / 64
		}
		if streams != 1 || found != want {
			t.Errorf("%s: %d streams, %d of %d pieces of the payload on the wire", enc, streams, found, len(plain)/64)
		}
	}
}

func TestFlippedBitEndsTheSession(t *testing.T) {
	noLeaks(t)
	for _, enc := range []api.Encryption{api.EncryptionAEAD, api.EncryptionNone} {
		armed := false
		a, b, _ := tapped(t, enc, func(c *proxied, b []byte) {
			// One bit within the body of the first chunk.
			const at = wire.OpeningSize + wire.ChunkHeaderSize + 1000
			if armed && c.isStream() && c.sent.Len() <= at && at < c.sent.Len()+len(b) {
				b[at-c.sent.Len()] ^= 4
				armed = false
			}
		})
		s := a.rec.await(t, "up").s
		b.rec.await(t, "up")
		b.rec.mu.Lock()
		b.rec.memory = make([]byte, 5000)
		armed = true
		b.rec.mu.Unlock()
		sendOne(t, s, pseudo(5000, 1))
		if e := b.rec.await(t, "done"); !isEnd(e.err, wire.CodeCorrupt, false) {
			t.Errorf("%s: chunk ended with %v", enc, e.err)
		}
		if e := b.rec.await(t, "down"); !isEnd(e.err, wire.CodeCorrupt, false) {
			t.Errorf("%s: receiver: %v", enc, e.err)
		}
		if e := a.rec.await(t, "down"); !isEnd(e.err, wire.CodeCorrupt, true) {
			t.Errorf("%s: sender: %v", enc, e.err)
		}
		if !bytes.Equal(b.rec.memory, make([]byte, 5000)) {
			t.Errorf("%s: bytes of a bad chunk reached the target", enc)
		}
		if st := b.mux.Counters(); st.ChunksFailed != 1 || st.ChunksReceived != 0 {
			t.Errorf("%s: %+v", enc, st)
		}
		if a.rec.await(t, "up").s.ID() == s.ID() {
			t.Errorf("%s: the next session has the same id", enc)
		}
	}
}

func TestReplayedChunkEndsTheSession(t *testing.T) {
	noLeaks(t)
	a, b, p := tapped(t, api.EncryptionAEAD, nil)
	s := a.rec.await(t, "up").s
	b.rec.memory = make([]byte, 5000)
	sendOne(t, s, pseudo(5000, 1))
	if e := b.rec.await(t, "done"); e.err != nil {
		t.Fatal(e.err)
	}
	for _, c := range p.all() {
		p.mu.Lock()
		sent := bytes.Clone(c.sent.Bytes())
		p.mu.Unlock()
		if bytes.HasPrefix(sent, []byte(wire.Magic)) {
			if _, err := c.server.Write(sent[wire.OpeningSize:]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if e := b.rec.await(t, "down"); !isEnd(e.err, wire.CodeProtocol, false) {
		t.Error(e.err)
	}
	if n := b.mux.Counters().ChunksReceived; n != 1 {
		t.Errorf("%d chunks received", n)
	}
}

func TestTargetRefusals(t *testing.T) {
	noLeaks(t)
	a, b := pair(t, api.EncryptionAEAD, 1, nil)
	s := a.rec.await(t, "up").s
	// Unknown: read and dropped, and the stream goes on.
	sendOne(t, s, []byte("dropped"))
	b.rec.mu.Lock()
	b.rec.memory = make([]byte, 10)
	b.rec.mu.Unlock()
	eventually(t, "the first chunk was dropped", func() bool { return b.mux.Counters().ChunksDropped == 1 || b.mux.Counters().ChunksReceived == 1 })
	sendOne(t, s, []byte("kept"))
	b.rec.await(t, "done")
	// Out of range: a violation, with the handler's code.
	if err := s.SendChunk(context.Background(), 0, wire.ID{9}, 8, [][]byte{[]byte("beyond")}); err != nil {
		t.Fatal(err)
	}
	if e := a.rec.await(t, "down"); !isEnd(e.err, wire.CodeProtocol, true) {
		t.Error(e.err)
	}
}

func TestStreamDeathEndsTheSessionOnce(t *testing.T) {
	noLeaks(t)
	a, b, p := tapped(t, api.EncryptionAEAD, nil)
	first := a.rec.await(t, "up").s
	b.rec.await(t, "up")
	for _, c := range p.all() {
		p.mu.Lock()
		is := c.isStream()
		p.mu.Unlock()
		if is {
			_ = c.client.Close()
			_ = c.server.Close()
		}
	}
	for _, n := range []*node{a, b} {
		// After the session's only "down" comes the next one's "up".
		if e := <-n.rec.events; e.what != "down" || e.s.ID() != first.ID() {
			t.Errorf("%s: first %s of %v", n.name, e.what, e.s.ID())
		}
		if e := n.rec.await(t, "up"); e.s.ID() == first.ID() {
			t.Error("the same session came up again")
		}
	}
	if st := a.mux.Status("l"); !st.Up || st.LastError != "" || st.Since.IsZero() {
		t.Errorf("status %+v", st)
	}
	if first.SendChunk(context.Background(), 0, wire.ID{}, 0, [][]byte{{1}}) == nil {
		t.Error("the dead session sends")
	}
}
