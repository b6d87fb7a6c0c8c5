package transport

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

func (m *Mux) hello(cfg *PeerConfig, session wire.ID) *wire.Hello {
	h := &wire.Hello{
		Version: wire.Version, Node: m.opt.Node, Instance: m.opt.Instance, Session: session,
		Encryption: wireEncryption(cfg.Encryption), Streams: uint8(min(max(cfg.Streams, 1), wire.MaxStreams)),
	}
	if m.opt.Engines != nil {
		h.Engines = m.opt.Engines()
	}
	return h
}

// checkHello decides whether the peer is the one that the link is for, and both
// ends agree. The sentence goes to both operators.
func (m *Mux) checkHello(cfg *PeerConfig, h *wire.Hello) *SessionError {
	switch {
	case h.Version != wire.Version:
		return &SessionError{Code: wire.CodeProtocol,
			Reason: fmt.Sprintf("the peer speaks version %d, node %s speaks version %d: run the same moaid on both", h.Version, m.opt.Node, wire.Version)}
	case h.Node != cfg.Node:
		return &SessionError{Code: wire.CodeUntrusted,
			Reason: fmt.Sprintf("the peer calls itself node %q, its key is pinned on node %s for node %q", h.Node, m.opt.Node, cfg.Node)}
	case h.Encryption != wireEncryption(cfg.Encryption):
		return &SessionError{Code: wire.CodeEncryption,
			Reason: fmt.Sprintf("encryption of the link is %s on node %s and %s on node %s: set the same on both",
				encryptionName(wireEncryption(cfg.Encryption)), m.opt.Node, encryptionName(h.Encryption), cfg.Node)}
	}
	return nil
}

// readHello reads the peer's first frame, which may be a GOODBYE.
func readHello(r *bufio.Reader) (*wire.Hello, error) {
	f, err := readFrame(r)
	if err != nil {
		return nil, err
	}
	switch f := f.(type) {
	case *wire.Hello:
		return f, nil
	case *wire.Goodbye:
		return nil, &SessionError{Code: f.Code, Remote: true, Reason: f.Reason}
	}
	return nil, &wire.Error{Code: wire.CodeProtocol, Reason: "the first frame is " + wire.TypeName(f.Type()) + ", not HELLO"}
}

// refuse says GOODBYE on a connection that did not become a session.
func (m *Mux) refuse(raw net.Conn, tc *tls.Conn, e *SessionError) {
	if !e.Remote {
		writeGoodbye(tc, e)
	}
	lingerClose(raw, m.opt.Timing.Linger)
}

// acceptPeer runs the session of an authenticated peer that dialled us. It owns
// raw.
func (m *Mux) acceptPeer(raw net.Conn, tc *tls.Conn, who *peerIdentity) {
	stop := m.closeWithMux(raw)
	defer stop()
	s, e := m.greet(raw, tc, who)
	if e != nil {
		m.count.refusedHello.Add(1)
		m.log.Warn("refused a session", "peer", who.node, "pin", who.name, "remote", raw.RemoteAddr().String(), "error", e)
		m.refuse(raw, tc, e)
		return
	}
	stop()         // the session says GOODBYE itself
	_ = s.run(nil) // why it ended is the Handler's and the link's to tell
}

func (m *Mux) greet(raw net.Conn, tc *tls.Conn, who *peerIdentity) (*session, *SessionError) {
	if err := raw.SetDeadline(time.Now().Add(m.opt.Timing.Setup)); err != nil {
		return nil, violation(err)
	}
	r := bufio.NewReaderSize(tc, 32<<10)
	h, err := readHello(r)
	if err != nil {
		return nil, asSessionError(err)
	}
	m.mu.Lock()
	l := m.links[who.node]
	m.mu.Unlock()
	if l == nil {
		return nil, &SessionError{Code: wire.CodeNotPaired, Reason: fmt.Sprintf("node %s has no link to node %s", m.opt.Node, who.node)}
	}
	e := m.checkHello(&l.cfg, h)
	switch {
	case e != nil:
	case !who.key.Equal(l.cfg.Key):
		e = &SessionError{Code: wire.CodeUntrusted, Reason: fmt.Sprintf("node %s dialled with key %s, the link on node %s expects %s",
			who.node, KeyString(who.key), m.opt.Node, KeyString(l.cfg.Key))}
	case l.cfg.Dial:
		e = &SessionError{Code: wire.CodeProtocol, Reason: fmt.Sprintf("both ends of the link between node %s and node %s dial: exactly one must", m.opt.Node, who.node)}
	case h.Streams < 1 || h.Streams > wire.MaxStreams:
		e = &SessionError{Code: wire.CodeProtocol, Reason: fmt.Sprintf("a session has 1 to %d streams, not %d", wire.MaxStreams, h.Streams)}
	case h.Session.IsZero():
		e = &SessionError{Code: wire.CodeProtocol, Reason: "the dialler's session id is zero"}
	}
	if e != nil {
		l.note(e.Error())
		return nil, e
	}
	s, err := m.newSession(sessionParams{
		link: l, id: h.Session, key: who.key, instance: h.Instance, encryption: h.Encryption, streams: int(h.Streams),
		engines: h.Engines, raw: raw, tls: tc, reader: r,
	})
	if err != nil {
		return nil, asSessionError(err)
	}
	// Our HELLO tells the dialler that streams of the session are taken now: it
	// must come after the registration. It is the first frame in the queue.
	if err := s.out.push(m.hello(&l.cfg, wire.ID{})); err != nil {
		s.fail(violation(fmt.Errorf("announce our engines: %w", err)))
	}
	return s, nil
}
