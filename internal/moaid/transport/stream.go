package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

const scratchSize = wire.ChunkHeaderSize + wire.MaxChunk + wire.TagSize

// stream is one data connection. Whoever holds it (from session.free) may write;
// its own goroutine reads.
type stream struct {
	conn    net.Conn
	number  uint16
	sealer  *wire.Sealer
	opener  *wire.Opener
	scratch []byte // for sending; made with the first chunk
}

// acceptStream checks an opening and adds its stream. It owns conn if it returns
// nil.
func (s *session) acceptStream(conn net.Conn, o wire.Opening, opening *[wire.OpeningSize]byte) error {
	if int(o.Stream) >= s.nstreams {
		return fmt.Errorf("stream %d of a session with %d", o.Stream, s.nstreams)
	}
	key, err := s.state.ExportKeyingMaterial(wire.LabelStream, wire.StreamContext(o.Stream, o.Epoch), wire.StreamKeySize)
	if err != nil {
		return fmt.Errorf("export the stream key: %w", err)
	}
	if !wire.VerifyOpening(opening, key) {
		return errors.New("the opening's MAC is wrong")
	}
	answer := wire.AppendAnswer(nil, opening, key)
	return s.addStream(conn, o, func() error {
		if _, err := conn.Write(answer); err != nil {
			return fmt.Errorf("answer the opening: %w", err)
		}
		return nil
	})
}

// addStream takes a verified connection into the session. The number is taken for
// good before keys are exported: a pair of stream and epoch seals once. confirm
// runs between that and the first use.
func (s *session) addStream(conn net.Conn, o wire.Opening, confirm func() error) error {
	st := &stream{conn: conn, number: o.Stream}
	s.mu.Lock()
	if s.ending || s.cause != nil {
		s.mu.Unlock()
		return errors.New("the session is ending")
	}
	if _, taken := s.streams[o.Stream]; taken {
		s.mu.Unlock()
		return fmt.Errorf("stream %d is open already", o.Stream)
	}
	s.streams[o.Stream] = st
	s.wg.Add(1) // for receive; under mu, so never after teardown waits
	s.mu.Unlock()

	err := s.protect(st, o)
	if err == nil {
		err = confirm()
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	// From here the token exists in any case: teardown collects one a stream.
	s.free <- st
	if err != nil {
		s.wg.Done()
		err = fmt.Errorf("cannot open data stream %d: %w", o.Stream, err)
		s.fail(&SessionError{Code: wire.CodeProtocol, Reason: err.Error(), Cause: err})
		return err
	}
	go func() {
		defer s.wg.Done()
		s.receive(st)
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened++; s.opened == s.nstreams {
		close(s.streamsOpen)
	}
	return nil
}

// protect makes the stream's sealer and opener.
func (s *session) protect(st *stream, o wire.Opening) error {
	out, in := wire.FromDialler, wire.FromAcceptor
	if !s.dialler {
		out, in = in, out
	}
	outKey, err := s.dataKey(out, o)
	if err != nil {
		return err
	}
	inKey, err := s.dataKey(in, o)
	if err != nil {
		return err
	}
	if st.sealer, err = wire.NewSealer(s.encryption, outKey); err != nil {
		return err
	}
	st.opener, err = wire.NewOpener(s.encryption, inKey)
	return err
}

func (s *session) dataKey(dir wire.Direction, o wire.Opening) ([]byte, error) {
	if s.encryption == wire.EncryptionNone {
		return nil, nil
	}
	key, err := s.state.ExportKeyingMaterial(wire.LabelData, wire.DataContext(dir, o.Stream, o.Epoch), wire.DataKeySize)
	if err != nil {
		return nil, fmt.Errorf("export the data key: %w", err)
	}
	return key, nil
}

// sendChunk borrows a stream, seals into its scratch and writes once.
func (s *session) sendChunk(ctx context.Context, h wire.ChunkHeader, src [][]byte) error {
	var st *stream
	select {
	case st = <-s.free:
	case <-s.done:
		return s.err()
	case <-ctx.Done():
		return fmt.Errorf("wait for a data stream: %w", context.Cause(ctx))
	}
	defer func() { s.free <- st }()
	// Both may have been ready: the end goes first.
	select {
	case <-s.done:
		return s.err()
	default:
	}
	if st.scratch == nil {
		st.scratch = make([]byte, 0, scratchSize)
	}
	b, err := st.sealer.Seal(st.scratch[:0], h, src)
	if err != nil {
		if errors.Is(err, wire.ErrExhausted) {
			s.fail(violation(err))
		}
		return fmt.Errorf("seal a chunk: %w", err)
	}
	if err = st.conn.SetWriteDeadline(time.Now().Add(s.mux.opt.Timing.Write)); err == nil {
		_, err = st.conn.Write(b)
	}
	if err != nil {
		s.streamBroke(st, "write", err)
		return s.err()
	}
	plain := uint64(len(b) - wire.ChunkHeaderSize - st.opener.Overhead())
	s.mux.count.chunksSent.Add(1)
	s.mux.count.bytesSent.Add(plain)
	if h.Kind == wire.KindKV {
		s.link.bytes.sent.Add(int64(plain))
	}
	return nil
}

// streamBroke ends the session. A peer that ends it closes its streams too, and
// its GOODBYE, which says why, may be a moment behind.
func (s *session) streamBroke(st *stream, what string, err error) {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		wait := time.NewTimer(s.mux.opt.Timing.Linger)
		defer wait.Stop()
		select {
		case <-s.done:
		case <-wait.C:
		}
	}
	s.fail(s.streamError(st, what, err))
}

func (s *session) streamError(st *stream, what string, err error) *SessionError {
	reason := fmt.Sprintf("%s data stream %d: %v", what, st.number, err)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		reason = fmt.Sprintf("data stream %d of node %s stood still for %v", st.number, s.node, s.mux.opt.Timing.Write)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		reason = fmt.Sprintf("data stream %d was closed by node %s", st.number, s.node)
	}
	return &SessionError{Code: wire.CodeProtocol, Reason: reason, Cause: err}
}

// receive reads chunks until the session ends. The bytes of a chunk are opened in
// the stream's scratch and copied out only after the check.
func (s *session) receive(st *stream) {
	buf := make([]byte, scratchSize)
	header := (*[wire.ChunkHeaderSize]byte)(buf)
	select {
	case <-s.up:
	case <-s.done:
		return
	}
	for {
		if _, err := io.ReadFull(st.conn, header[:]); err != nil {
			s.streamBroke(st, "read", err)
			return
		}
		if err := s.receiveChunk(st, header, buf[wire.ChunkHeaderSize:]); err != nil {
			s.fail(err)
			return
		}
	}
}

func (s *session) receiveChunk(st *stream, header *[wire.ChunkHeaderSize]byte, buf []byte) *SessionError {
	h, err := wire.ParseChunkHeader(header)
	if err == nil {
		err = st.opener.Expect(h)
	}
	if err != nil {
		s.mux.count.chunksFailed.Add(1)
		return violation(err)
	}
	body := buf[:h.Length+st.opener.Overhead()]
	if h.Kind == wire.KindProbe {
		return s.receiveProbe(st, h, header, body)
	}
	dst, ok, err := s.mux.opt.Handler.ChunkTarget(s, h)
	if err != nil {
		return violation(err)
	}
	if ok && total(dst) != h.Length {
		err := fmt.Errorf("internal: the target of a chunk of %d bytes has %d", h.Length, total(dst))
		s.mux.opt.Handler.ChunkDone(s, h, err)
		return violation(err)
	}
	plain, fail := s.readBody(st, header, body)
	if fail != nil {
		if ok {
			s.mux.opt.Handler.ChunkDone(s, h, fail)
		}
		return fail
	}
	if !ok {
		s.mux.count.chunksDropped.Add(1)
		return nil
	}
	for _, d := range dst {
		plain = plain[copy(d, plain):]
	}
	s.countReceived(h)
	s.link.bytes.received.Add(int64(h.Length))
	s.mux.opt.Handler.ChunkDone(s, h, nil)
	return nil
}

func (s *session) countReceived(h wire.ChunkHeader) {
	s.mux.count.chunksReceived.Add(1)
	s.mux.count.bytesReceived.Add(uint64(h.Length))
}

// readBody reads and checks what follows a header. A body must arrive within the
// write bound: pages wait for it.
func (s *session) readBody(st *stream, header *[wire.ChunkHeaderSize]byte, body []byte) ([]byte, *SessionError) {
	err := st.conn.SetReadDeadline(time.Now().Add(s.mux.opt.Timing.Write))
	if err == nil {
		_, err = io.ReadFull(st.conn, body)
	}
	if err == nil {
		err = st.conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		s.streamBroke(st, "read", err)
		return nil, s.err()
	}
	plain, err := st.opener.Open(header, body)
	if err != nil {
		s.mux.count.chunksFailed.Add(1)
		return nil, violation(err)
	}
	return plain, nil
}

func total(dst [][]byte) (n int) {
	for _, d := range dst {
		n += len(d)
	}
	return n
}
