package transport

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// closeWithMux closes conn when the Mux ends, until stop is called.
func (m *Mux) closeWithMux(conn net.Conn) (stop func() bool) {
	return context.AfterFunc(m.ctx, func() { m.closeConn(conn) })
}

// dialLoop keeps a session with the link's peer until the link ends.
func (m *Mux) dialLoop(l *link) {
	b := backoff{min: m.opt.Timing.BackoffMin, max: m.opt.Timing.BackoffMax}
	last := ""
	for l.ctx.Err() == nil {
		began := time.Now()
		err := m.dialOnce(l)
		if l.ctx.Err() != nil {
			return
		}
		l.note(err.Error())
		if err.Error() != last { // a peer that stays away is logged once
			last = err.Error()
			m.log.Warn("no session with the peer, dialling again", "peer", l.cfg.Node, "link", l.cfg.Link, "error", last)
		}
		if !sleep(l.ctx, b.next(time.Since(began), mathrand.Float64())) { //nolint:gosec // jitter
			return
		}
	}
}

// dialOnce tries each address, and runs the first session that comes up to its
// end. The error says why there is none now.
func (m *Mux) dialOnce(l *link) error {
	if m.certErr != nil {
		return m.certErr
	}
	if len(l.cfg.Addresses) == 0 {
		return fmt.Errorf("link %s has no address of node %s to dial", l.cfg.Link, l.cfg.Node)
	}
	var reasons []string
	for _, address := range l.cfg.Addresses {
		m.count.dials.Add(1)
		s, err := m.connect(l, address)
		if err == nil {
			return s.run(func() error { return s.openStreams(address) })
		}
		m.count.dialErrors.Add(1)
		reasons = append(reasons, m.explainDial(address, err))
		if l.ctx.Err() != nil {
			break
		}
	}
	return errors.New(strings.Join(reasons, "; "))
}

func (m *Mux) dialTCP(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: m.opt.Timing.Dial}
	return d.DialContext(ctx, "tcp", address)
}

// connect goes as far as the peer's HELLO.
func (m *Mux) connect(l *link, address string) (*session, error) {
	raw, err := m.dialTCP(l.ctx, address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(l.ctx, func() { m.closeConn(raw) })
	defer stop()
	s, err := m.greetAcceptor(l, raw)
	if err != nil {
		m.closeConn(raw)
	}
	return s, err
}

func (m *Mux) greetAcceptor(l *link, raw net.Conn) (*session, error) {
	if err := raw.SetDeadline(time.Now().Add(m.opt.Timing.Setup)); err != nil {
		return nil, err
	}
	tc := tls.Client(raw, m.clientTLS(&l.cfg))
	if err := tc.HandshakeContext(l.ctx); err != nil {
		return nil, err
	}
	var id wire.ID
	if _, err := io.ReadFull(rand.Reader, id[:]); err != nil {
		return nil, fmt.Errorf("make a session id: %w", err)
	}
	ours := m.hello(&l.cfg, id)
	b, err := wire.Encode(nil, ours)
	if err != nil {
		return nil, fmt.Errorf("announce our engines: %w", err)
	}
	if _, err := tc.Write(b); err != nil {
		return nil, &helloError{err}
	}
	r := bufio.NewReaderSize(tc, 32<<10)
	h, err := readHello(r)
	if err != nil {
		return nil, &helloError{err}
	}
	if e := m.checkHello(&l.cfg, h); e != nil {
		m.refuse(raw, tc, e)
		return nil, e
	}
	return m.newSession(sessionParams{
		link: l, id: id, key: l.cfg.Key, dialler: true, instance: h.Instance, encryption: ours.Encryption,
		streams: int(ours.Streams), engines: h.Engines, raw: raw, tls: tc, reader: r,
	})
}

// openStreams opens all data streams at the address of the control connection.
func (s *session) openStreams(address string) error {
	for n := range s.nstreams {
		if err := s.openStream(address, wire.Opening{Session: s.id, Stream: uint16(n)}); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) openStream(address string, o wire.Opening) error {
	ctx, cancel := context.WithCancel(s.mux.ctx)
	defer cancel()
	conn, err := s.mux.dialTCP(ctx, address)
	if err != nil {
		return fmt.Errorf("cannot open data stream %d: %w", o.Stream, err)
	}
	stop := context.AfterFunc(ctx, func() { s.mux.closeConn(conn) })
	key, err := s.state.ExportKeyingMaterial(wire.LabelStream, wire.StreamContext(o.Stream, o.Epoch), wire.StreamKeySize)
	if err == nil {
		err = s.addStream(conn, o, func() error { return s.exchangeOpening(conn, o, key) })
	}
	if !stop() || err != nil {
		s.mux.closeConn(conn)
	}
	return err
}

func (s *session) exchangeOpening(conn net.Conn, o wire.Opening, key []byte) error {
	if err := conn.SetDeadline(time.Now().Add(s.mux.opt.Timing.Unauthenticated)); err != nil {
		return err
	}
	opening := [wire.OpeningSize]byte(o.Append(nil, key))
	if _, err := conn.Write(opening[:]); err != nil {
		return err
	}
	var answer [wire.AnswerSize]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return fmt.Errorf("it was not answered: %w", err)
	}
	if !wire.VerifyAnswer(&answer, &opening, key) {
		return errors.New("it was answered by somebody who does not have the session's key")
	}
	return nil
}
