package worker

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/transformer"
)

// order is what an engine sends to a rank's process: one of the fields is set.
type order struct {
	Setup  *setup              // first, once
	Chunks []transformer.Chunk // compute
	Meta   *sched.Meta         // store and load
	State  bool                // say how the session with the daemon is; answered at once, in order
}

type setup struct {
	Spec Spec
	Rank int
}

// report is what a rank's process sends: one of the fields is set.
type report struct {
	Ready  bool              // answers setup
	Fatal  string            // the rank cannot go on, and ends
	Logits *logits           // answers chunks, of rank 0 only
	Loaded *sched.LoadResult // of an order to load
	Copied *copied
	State  *state // answers State
}

type logits struct{ Chunks [][]float32 } // empty where none were wanted

type copied struct {
	Direction string
	Bytes     int64
}

type state struct{ Err string } // "" while the session is up

// Bounds of what crosses: a message holds at most the tokens of a batch, their
// block tables, and logits.
const (
	maxMessage   = 256 << 20
	writeTimeout = 30 * time.Second
)

// link carries messages over one end of a socket pair. One goroutine may read,
// any number may write.
type link struct {
	c   *net.UnixConn
	dec *gob.Decoder
	in  *io.LimitedReader

	mu  sync.Mutex
	enc *gob.Encoder
}

// newLink takes the socket; the file is closed.
func newLink(f *os.File) (*link, error) {
	c, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return nil, fmt.Errorf("socket of a rank: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, fmt.Errorf("a rank's socket is of network %q, not a unix socket", c.LocalAddr().Network())
	}
	in := &io.LimitedReader{R: c}
	return &link{c: u, in: in, dec: gob.NewDecoder(in), enc: gob.NewEncoder(c)}, nil
}

func (l *link) write(v any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return l.enc.Encode(v)
}

// read decodes the next message; io.EOF says that the other end has gone.
func (l *link) read(v any) error {
	l.in.N = maxMessage
	err := l.dec.Decode(v)
	if err != nil && l.in.N <= 0 {
		return fmt.Errorf("a message is longer than %d bytes", maxMessage)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

func (l *link) close() { _ = l.c.Close() }
