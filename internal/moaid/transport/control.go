package transport

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// readFrame reads one frame. Its length is checked before anything is allocated.
func readFrame(r *bufio.Reader) (wire.Message, error) {
	var h [4]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, err
	}
	n, err := wire.FrameLength(h)
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	return wire.ParseBody(b[0], b[1:])
}

// readLoop reads the control connection until the session ends, and then the
// rest, so that the connection closes without a reset.
func (s *session) readLoop() {
	if s.readFrames() {
		// What is discarded here is bounded by the linger deadline.
		_, _ = io.Copy(io.Discard, s.raw)
	}
}

// readFrames says whether the connection may still have something to read.
func (s *session) readFrames() bool {
	for {
		if err := s.setDeadline(s.raw.SetReadDeadline, s.mux.opt.Timing.Idle); err != nil {
			s.fail(&SessionError{Code: wire.CodeProtocol, Reason: "control connection: " + err.Error(), Cause: err})
			return false
		}
		m, err := readFrame(s.reader)
		if err != nil {
			var w *wire.Error
			if errors.As(err, &w) {
				s.fail(violation(err))
				return true
			}
			s.fail(s.readError(err))
			return false
		}
		s.mux.count.framesReceived.Add(1)
		if e := s.handle(m); e != nil {
			s.fail(e)
			return !e.Remote
		}
		select {
		case <-s.done:
			return true
		default:
		}
	}
}

func (s *session) readError(err error) *SessionError {
	reason := err.Error()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		reason = fmt.Sprintf("heard nothing from node %s for %v", s.node, s.mux.opt.Timing.Idle)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		reason = "node " + s.node + " closed the control connection without a word"
	}
	return &SessionError{Code: wire.CodeProtocol, Reason: reason, Cause: err}
}

func (s *session) handle(m wire.Message) *SessionError {
	switch m := m.(type) {
	case *wire.Hello:
		return violation(&wire.Error{Code: wire.CodeProtocol, Reason: "a second HELLO"})
	case *wire.Goodbye:
		return &SessionError{Code: m.Code, Remote: true, Reason: m.Reason}
	case *wire.Ping:
		return s.reply(&wire.Pong{Nonce: m.Nonce})
	case *wire.Pong:
		s.ping.pong(m.Nonce)
	case *wire.Probe:
		if refusal := s.probes.announce(m); refusal != nil {
			return s.reply(refusal)
		}
	case *wire.ProbeResult:
		s.probes.result(m)
	case *wire.Unknown:
		s.mux.count.framesUnknown.Add(1)
	case *wire.Engines:
		s.engines.Store(&m.Engines)
		// Before SessionUp it is only part of what the session comes up with.
		if s.announced.Load() {
			s.deliver(m)
		}
	default:
		s.deliver(m)
	}
	return nil
}

// reply queues an answer of the transport's own. It cannot be too long.
func (s *session) reply(m wire.Message) *SessionError {
	// A failure has ended the session already.
	if err := s.Send(m); err != nil {
		return s.err()
	}
	return nil
}

// deliver gives a message to the Handler, but not before SessionUp: the peer may
// be up earlier than we are.
func (s *session) deliver(m wire.Message) {
	select {
	case <-s.up:
		s.mux.opt.Handler.Message(s, m)
	case <-s.done:
	}
}

// writeLoop is the only writer of the control connection. The end of the session
// goes before whatever is queued.
func (s *session) writeLoop() {
	tick := time.NewTicker(s.mux.opt.Timing.Ping)
	defer tick.Stop()
	ping := func() error { return s.out.push(s.ping.next(time.Now(), nil)) }
	err := ping()
	for err == nil {
		select {
		case <-s.done:
			s.sayGoodbye()
			return
		default:
		}
		select {
		case <-s.done:
			continue
		case <-tick.C:
			err = ping()
			continue
		case <-s.out.wake:
		}
		err = s.flush()
	}
	reason := "cannot write to the control connection: " + err.Error()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		reason = fmt.Sprintf("node %s did not read the control connection for %v", s.node, s.mux.opt.Timing.Write)
	}
	s.fail(&SessionError{Code: wire.CodeProtocol, Reason: reason, Cause: err})
}

func (s *session) flush() error {
	b, frames := s.out.take()
	defer s.out.giveBack(b)
	if len(b) == 0 {
		return nil
	}
	if err := s.setDeadline(s.raw.SetWriteDeadline, s.mux.opt.Timing.Write); err != nil {
		return err
	}
	if _, err := s.tls.Write(b); err != nil {
		return err
	}
	s.mux.count.framesSent.Add(frames)
	return nil
}

// sayGoodbye tells the peer why, if it does not know. Errors are of no use here:
// the session is over.
func (s *session) sayGoodbye() {
	cause := s.err()
	if cause.Remote {
		return
	}
	writeGoodbye(s.tls, cause)
}

func writeGoodbye(w interface {
	io.Writer
	CloseWrite() error
}, cause *SessionError) {
	b := (&wire.Goodbye{Code: cause.Code, Reason: cause.Reason}).Append(nil)
	if _, err := w.Write(b); err == nil {
		_ = w.CloseWrite() // the peer has the GOODBYE; the close notification is a courtesy
	}
}

// pinger matches PONGs with PINGs.
type pinger struct {
	rtt atomic.Int64

	mu      sync.Mutex
	nonce   uint64
	newest  uint64 // of the last periodic PING
	sent    time.Time
	waiting map[uint64]chan struct{}
}

// next makes a PING. With ch given, its PONG closes ch and does not count as RTT.
func (p *pinger) next(now time.Time, ch chan struct{}) *wire.Ping {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nonce++
	if ch == nil {
		p.newest, p.sent = p.nonce, now
	} else {
		if p.waiting == nil {
			p.waiting = make(map[uint64]chan struct{})
		}
		p.waiting[p.nonce] = ch
	}
	return &wire.Ping{Nonce: p.nonce}
}

func (p *pinger) pong(nonce uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if nonce == p.newest && !p.sent.IsZero() {
		p.rtt.Store(int64(time.Since(p.sent)))
		p.sent = time.Time{}
	}
	if ch := p.waiting[nonce]; ch != nil {
		delete(p.waiting, nonce)
		close(ch)
	}
}

func (p *pinger) forget(nonce uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, nonce)
}

func (p *pinger) last() time.Duration { return time.Duration(p.rtt.Load()) }
