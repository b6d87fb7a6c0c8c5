package conformance

import (
	"io"
	"net"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// stream is a data stream as the dialler.
type stream struct {
	c      *client
	conn   net.Conn
	sealer *wire.Sealer
	opener *wire.Opener
}

func (c *client) export(label string, context []byte, n int) []byte {
	c.t.Helper()
	cs := c.conn.ConnectionState()
	key, err := cs.ExportKeyingMaterial(label, context, n)
	if err != nil {
		c.t.Fatal(err)
	}
	return key
}

func (c *client) streamKey(o wire.Opening) []byte {
	return c.export(wire.LabelStream, wire.StreamContext(o.Stream, o.Epoch), wire.StreamKeySize)
}

// try sends an opening, and gives the connection.
func (c *client) try(opening []byte) net.Conn {
	c.t.Helper()
	conn := c.g.dial(c.t)
	if _, err := conn.Write(opening); err != nil {
		c.t.Fatal(err)
	}
	return conn
}

// open opens a stream as it must be, and checks the answer.
func (c *client) open(number uint16) *stream {
	c.t.Helper()
	o := wire.Opening{Session: c.id, Stream: number}
	key := c.streamKey(o)
	opening := [wire.OpeningSize]byte(o.Append(nil, key))
	conn := c.try(opening[:])
	var answer [wire.AnswerSize]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		c.t.Fatalf("stream %d was not answered: %v", number, err)
	}
	if !wire.VerifyAnswer(&answer, &opening, key) {
		c.t.Fatalf("stream %d: the answer's MAC is wrong", number)
	}
	sealer, err := wire.NewSealer(c.g.Encryption, c.export(wire.LabelData, wire.DataContext(wire.FromDialler, number, 0), wire.DataKeySize))
	if err != nil {
		c.t.Fatal(err)
	}
	opener, err := wire.NewOpener(c.g.Encryption, c.export(wire.LabelData, wire.DataContext(wire.FromAcceptor, number, 0), wire.DataKeySize))
	if err != nil {
		c.t.Fatal(err)
	}
	return &stream{c: c, conn: conn, sealer: sealer, opener: opener}
}

func (s *stream) seal(h wire.ChunkHeader, plain []byte) []byte {
	s.c.t.Helper()
	b, err := s.sealer.Seal(nil, h, [][]byte{plain})
	if err != nil {
		s.c.t.Fatal(err)
	}
	return b
}

func (s *stream) write(b []byte) {
	s.c.t.Helper()
	if _, err := s.conn.Write(b); err != nil {
		s.c.t.Fatal(err)
	}
}
