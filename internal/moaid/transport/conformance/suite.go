package conformance

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// Run checks the target. It opens one session after another, as ClientNode, and
// sends no KV: chunks are of unknown transfers, or probes.
func Run(t *testing.T, target Target) {
	for _, c := range []struct {
		name  string
		check func(*testing.T, *Target)
	}{
		{"first bytes", firstBytes},
		{"keys and roles", keysAndRoles},
		{"hello", hellos},
		{"frames", frames},
		{"abort", aborts},
		{"openings", openings},
		{"chunks", chunks},
		{"probe", probe},
		{"replacement", replacement},
	} {
		t.Run(c.name, func(t *testing.T) { c.check(t, &target) })
	}
}

// RunTransfers checks what a target with engines does with KV: it plays the far
// daemon in whole transfers, of both directions.
func RunTransfers(t *testing.T, target Target) { transfers(t, &target) }

func firstBytes(t *testing.T, g *Target) {
	silent, half := g.dial(t), g.dial(t)
	if _, err := half.Write([]byte("MOAI\x01")); err != nil {
		t.Fatal(err)
	}
	for name, first := range map[string]string{
		"HTTP": "GET /health HTTP/1.1\r\n\r\n", "almost the magic": "MOAX" + strings.Repeat("\x00", wire.OpeningSize), "zero": "\x00",
		"a stream of no session":      "MOAI\x01" + strings.Repeat("\x00", wire.OpeningSize-5),
		"a stream of another version": "MOAI\x02" + strings.Repeat("\x00", wire.OpeningSize-5),
	} {
		c := g.dial(t)
		if _, err := c.Write([]byte(first)); err != nil {
			t.Fatal(err)
		}
		closed(t, name, c)
	}
	closed(t, "silence", silent)
	closed(t, "half an opening", half)
}

func keysAndRoles(t *testing.T, g *Target) {
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key    ed25519.PrivateKey
		protos []string
	}{
		"a key that is not pinned":           {stranger, []string{wire.ALPNPeer}},
		"no ALPN":                            {g.Client, nil},
		"an unknown ALPN":                    {g.Client, []string{"h2"}},
		"a peer's key with a gateway's ALPN": {g.Client, []string{wire.ALPNGateway}},
	} {
		conn, err := g.tls(t, c.key, c.protos...)
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		var op *net.OpError
		if !errors.As(err, &op) || op.Op != "remote error" {
			t.Errorf("%s: %v; a TLS alert must refuse it", name, err)
		}
	}
	c := g.session(t, 1)
	cs := c.conn.ConnectionState()
	if cs.NegotiatedProtocol != wire.ALPNPeer || cs.DidResume {
		t.Errorf("%+v", cs)
	}
	c.bye()
}

func hellos(t *testing.T, g *Target) {
	for name, c := range map[string]struct {
		change func(h *wire.Hello)
		code   wire.Code
	}{
		"another version":    {func(h *wire.Hello) { h.Version = 9 }, wire.CodeProtocol},
		"another node":       {func(h *wire.Hello) { h.Node = "somebody-else" }, wire.CodeUntrusted},
		"another encryption": {func(h *wire.Hello) { h.Encryption ^= 1 }, wire.CodeEncryption},
		"no streams":         {func(h *wire.Hello) { h.Streams = 0 }, wire.CodeProtocol},
		"too many streams":   {func(h *wire.Hello) { h.Streams = wire.MaxStreams + 1 }, wire.CodeProtocol},
		"no session id":      {func(h *wire.Hello) { h.Session = wire.ID{} }, wire.CodeProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			s := g.connect(t)
			h := s.hello(1)
			c.change(h)
			s.send(h.Append(nil))
			s.ends(c.code)
		})
	}
	t.Run("another first frame", func(t *testing.T) {
		s := g.connect(t)
		s.send((&wire.Ping{}).Append(nil))
		s.ends(wire.CodeProtocol)
	})
	t.Run("a second HELLO", func(t *testing.T) {
		s := g.session(t, 1)
		s.send(s.hello(1).Append(nil))
		s.ends(wire.CodeProtocol)
	})
	t.Run("longer than known", func(t *testing.T) {
		s := g.connect(t)
		s.send(longer(s.hello(1)))
		s.expectHello()
		s.alive()
		s.bye()
	})
}

// longer is the frame with bytes behind its body that this version does not know.
func longer(m wire.Message) []byte {
	b := m.Append(nil)
	return (&wire.Unknown{FrameType: m.Type(), Body: append(b[wire.FrameHeaderSize:], 1, 2, 3)}).Append(nil)
}

func frames(t *testing.T, g *Target) {
	t.Run("ping, unknown types and trailing bytes", func(t *testing.T) {
		s := g.session(t, 1)
		s.alive()
		s.send(longer(&wire.Ping{Nonce: 77}))
		s.await("PONG", func(m wire.Message) bool { p, ok := m.(*wire.Pong); return ok && p.Nonce == 77 })
		s.send((&wire.Unknown{FrameType: 250, Body: []byte("?")}).Append(nil), (&wire.Unknown{FrameType: 0}).Append(nil))
		s.send((&wire.Pong{Nonce: 12345}).Append(nil)) // of no ping
		s.send((&wire.Engines{}).Append(nil))
		s.alive()
		s.bye()
	})
	for name, b := range map[string][]byte{
		"a body that is too short":    (&wire.Unknown{FrameType: wire.TypeAbort, Body: make([]byte, 17)}).Append(nil),
		"an empty body":               (&wire.Unknown{FrameType: wire.TypePing}).Append(nil),
		"a list longer than its body": (&wire.Unknown{FrameType: wire.TypeEngines, Body: []byte{0xff, 0xff}}).Append(nil),
		"a frame of no length":        {0, 0, 0, 0},
		"a frame beyond 1 MiB":        {0, 0x10, 0, 1},
		"a string that is not UTF-8":  (&wire.Unknown{FrameType: wire.TypeGoodbye, Body: []byte{0, 1, 0, 1, 0xff}}).Append(nil),
	} {
		t.Run(name, func(t *testing.T) {
			s := g.session(t, 1)
			s.send(b)
			s.ends(wire.CodeProtocol)
		})
	}
}

func aborts(t *testing.T, g *Target) {
	s := g.session(t, 1)
	s.open(0)
	id := newID(t)
	for range 3 {
		s.send((&wire.Abort{ID: id, Code: wire.CodeCancelled, Reason: "nobody knows it"}).Append(nil))
	}
	s.send((&wire.Abort{ID: id, Code: 60000}).Append(nil)) // a code of a later version
	s.alive()
	s.bye()
}

func openings(t *testing.T, g *Target) {
	s := g.session(t, 2)
	first := wire.Opening{Session: s.id, Stream: 0}
	right := first.Append(nil, s.streamKey(first))
	wrong := append([]byte(nil), right...)
	wrong[len(wrong)-1] ^= 1
	closed(t, "a wrong MAC", s.try(wrong))
	high := wire.Opening{Session: s.id, Stream: 2}
	closed(t, "a stream number too high", s.try(high.Append(nil, s.streamKey(high))))
	other := wire.Opening{Session: s.id, Stream: 1}
	closed(t, "the key of another stream", s.try(other.Append(nil, s.streamKey(first))))
	s.open(0)
	closed(t, "a repeated opening", s.try(right))
	again := wire.Opening{Session: s.id, Stream: 0, Epoch: 1}
	closed(t, "another epoch of an open stream", s.try(again.Append(nil, s.streamKey(again))))
	s.alive() // none of this harmed the session
	s.open(1)
	s.alive()
	s.bye()
	closed(t, "a stream of a session that has ended", s.try(right))
}

func chunks(t *testing.T, g *Target) {
	up := func(t *testing.T) (*client, *stream) {
		t.Helper()
		s := g.session(t, 1)
		return s, s.open(0)
	}
	h := wire.ChunkHeader{Kind: wire.KindKV, ID: newID(t)}
	t.Run("of an unknown transfer are dropped", func(t *testing.T) {
		s, st := up(t)
		st.write(st.seal(h, []byte("one")))
		st.write(st.seal(h, make([]byte, wire.MaxChunk)))
		st.write(st.seal(wire.ChunkHeader{Kind: wire.KindProbe, ID: newID(t)}, []byte("three")))
		// A probe behind them on the same stream shows that they were read.
		s.probe(st, 10, true)
		s.alive()
		s.bye()
	})
	for name, c := range map[string]struct {
		code   wire.Code
		damage func(st *stream) []byte
	}{
		"a flipped bit of the body": {wire.CodeCorrupt, func(st *stream) []byte {
			b := st.seal(h, []byte("some bytes"))
			b[wire.ChunkHeaderSize+3] ^= 0x10
			return b
		}},
		"a flipped bit of the check": {wire.CodeCorrupt, func(st *stream) []byte {
			b := st.seal(h, []byte("some bytes"))
			b[len(b)-1] ^= 1
			return b
		}},
		"a flipped bit of the id": {wire.CodeCorrupt, func(st *stream) []byte {
			b := st.seal(h, []byte("some bytes"))
			b[4] ^= 1
			return b
		}},
		"a repeat": {wire.CodeProtocol, func(st *stream) []byte {
			b := st.seal(h, []byte("some bytes"))
			return append(b, b...)
		}},
		"a gap": {wire.CodeProtocol, func(st *stream) []byte {
			st.seal(h, []byte("lost"))
			return st.seal(h, []byte("some bytes"))
		}},
		"an unknown kind":  {wire.CodeProtocol, headerWith(h, func(b []byte) { b[0] = 9 })},
		"flags":            {wire.CodeProtocol, headerWith(h, func(b []byte) { b[1] = 1 })},
		"reserved bits":    {wire.CodeProtocol, headerWith(h, func(b []byte) { b[40] = 1 })},
		"no length":        {wire.CodeProtocol, headerWith(h, func(b []byte) { clear(b[36:40]) })},
		"too long":         {wire.CodeProtocol, headerWith(h, func(b []byte) { b[36] = 1 })},
		"offset past 2^63": {wire.CodeProtocol, headerWith(h, func(b []byte) { b[20] = 0xff })},
	} {
		t.Run(name, func(t *testing.T) {
			s, st := up(t)
			st.write(c.damage(st))
			s.ends(c.code)
		})
	}
	t.Run("a stream that breaks ends the session", func(t *testing.T) {
		s, st := up(t)
		s.alive()
		if err := st.conn.Close(); err != nil {
			t.Fatal(err)
		}
		s.ends(wire.CodeProtocol)
	})
}

func headerWith(h wire.ChunkHeader, change func(b []byte)) func(st *stream) []byte {
	return func(st *stream) []byte {
		b := st.seal(h, []byte("some bytes"))
		change(b)
		return b
	}
}

// probe runs one probe over one stream.
func (c *client) probe(st *stream, bytes int, honest bool) {
	c.t.Helper()
	plain := make([]byte, bytes)
	if _, err := rand.Read(plain); err != nil {
		c.t.Fatal(err)
	}
	id := newID(c.t)
	root := sha256.New()
	for off := 0; off < bytes; off += wire.MaxChunk {
		sum := sha256.Sum256(plain[off:min(off+wire.MaxChunk, bytes)])
		root.Write(sum[:])
	}
	hash := [32]byte(root.Sum(nil))
	if !honest {
		hash[0] ^= 1
	}
	c.send((&wire.Probe{ID: id, Bytes: int64(bytes), Hash: hash}).Append(nil))
	c.alive()
	// Last chunk first: the order must not matter.
	for off := (bytes - 1) / wire.MaxChunk * wire.MaxChunk; off >= 0; off -= wire.MaxChunk {
		st.write(st.seal(wire.ChunkHeader{Kind: wire.KindProbe, ID: id, Offset: int64(off)}, plain[off:min(off+wire.MaxChunk, bytes)]))
	}
	c.await("PROBE_RESULT", func(m wire.Message) bool {
		r, ok := m.(*wire.ProbeResult)
		if !ok {
			return false
		}
		if r.ID != id || r.Bytes != int64(bytes) || r.OK != honest || (r.Reason == "") != honest {
			c.t.Errorf("PROBE_RESULT %+v", r)
		}
		return true
	})
}

func probe(t *testing.T, g *Target) {
	s := g.session(t, 1)
	st := s.open(0)
	s.probe(st, 1, true)
	s.probe(st, 2*wire.MaxChunk+7, true)
	s.probe(st, wire.MaxChunk, false)
	for _, n := range []int64{0, wire.MaxProbe + 1} {
		id := newID(t)
		s.send((&wire.Probe{ID: id, Bytes: n}).Append(nil))
		s.await("refusal of a probe", func(m wire.Message) bool { r, ok := m.(*wire.ProbeResult); return ok && r.ID == id && !r.OK })
	}
	s.alive()
	// A chunk that the announced probe does not have.
	id := newID(t)
	s.send((&wire.Probe{ID: id, Bytes: 100}).Append(nil))
	s.alive()
	st.write(st.seal(wire.ChunkHeader{Kind: wire.KindProbe, ID: id, Offset: 1}, []byte("x")))
	s.ends(wire.CodeProtocol)
}

func replacement(t *testing.T, g *Target) {
	old := g.session(t, 1)
	old.open(0)
	old.alive()
	next := g.session(t, 1)
	next.open(0)
	old.ends(wire.CodeReplaced)
	next.alive()
	// An id that is in use opens no second session.
	twin := g.connect(t)
	twin.id = next.id
	twin.send(twin.hello(1).Append(nil))
	twin.ends(wire.CodeProtocol)
	next.alive()
	next.bye()
}
