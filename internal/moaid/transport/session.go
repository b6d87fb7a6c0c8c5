package transport

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// session is one authenticated peer, from HELLO to the last of its goroutines.
type session struct {
	mux        *Mux
	link       *link
	id         wire.ID
	made       uint64 // sessions of the Mux in the order of their HELLOs
	node       string
	key        ed25519.PublicKey
	dialler    bool
	instance   wire.ID
	encryption wire.Encryption
	nstreams   int
	engines    atomic.Pointer[[]wire.Engine]

	raw    net.Conn
	tls    *tls.Conn
	reader *bufio.Reader
	state  tls.ConnectionState // for the exporter
	out    outbox
	ping   pinger
	probes probes

	streamsOpen chan struct{}  // all streams are open
	up          chan struct{}  // SessionUp has returned
	done        chan struct{}  // the session has begun to end
	finished    chan struct{}  // nothing of it is left
	announced   atomic.Bool    // SessionUp is about to be, or was, called
	free        chan *stream   // streams that nobody writes to
	wg          sync.WaitGroup // its goroutines

	mu      sync.Mutex
	cause   *SessionError
	ending  bool               // no new stream, no later deadline
	opened  int                // of streams, the ones in use
	streams map[uint16]*stream // all whose number is taken
}

type sessionParams struct {
	link       *link
	id         wire.ID
	key        ed25519.PublicKey
	dialler    bool
	instance   wire.ID
	encryption wire.Encryption
	streams    int
	engines    []wire.Engine
	raw        net.Conn
	tls        *tls.Conn
	reader     *bufio.Reader
}

// newSession registers the session, so that its streams can be opened and Close
// finds it. Whoever made it must call run.
func (m *Mux) newSession(p sessionParams) (*session, error) {
	s := &session{
		mux: m, link: p.link, id: p.id, node: p.link.cfg.Node, key: p.key, dialler: p.dialler, instance: p.instance,
		encryption: p.encryption, nstreams: p.streams,
		raw: p.raw, tls: p.tls, reader: p.reader, state: p.tls.ConnectionState(),
		streamsOpen: make(chan struct{}), up: make(chan struct{}), done: make(chan struct{}), finished: make(chan struct{}),
		free: make(chan *stream, p.streams), streams: make(map[uint16]*stream),
	}
	s.out.init()
	s.engines.Store(&p.engines)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return nil, &SessionError{Code: wire.CodeShutdown, Reason: "the daemon shuts down"}
	case m.links[s.node] != p.link:
		return nil, &SessionError{Code: wire.CodeReplaced, Reason: "the link's configuration changed"}
	case !p.dialler && m.accepted[p.id] != nil:
		return nil, &SessionError{Code: wire.CodeProtocol, Reason: "the session id is in use"}
	}
	m.made++
	s.made = m.made
	m.live[s] = true
	if !p.dialler {
		m.accepted[p.id] = s
	}
	return s, nil
}

// run is the session's owner: it brings it up, waits for its end, and waits for
// everything that it started. open starts the streams at the end that dials.
func (s *session) run(open func() error) *SessionError {
	s.checkPin() // it may have gone between the handshake and the registration
	s.wg.Go(s.writeLoop)
	s.wg.Go(s.readLoop)
	if open != nil {
		s.wg.Go(func() {
			if err := open(); err != nil {
				s.fail(&SessionError{Code: wire.CodeProtocol, Reason: err.Error(), Cause: err})
			}
		})
	}
	setup := time.NewTimer(s.mux.opt.Timing.Setup)
	defer setup.Stop()
	wasUp := false
	select {
	case <-s.streamsOpen:
		if s.mux.install(s) {
			wasUp = true
			s.mux.opt.Handler.SessionUp(s)
			close(s.up)
		}
	case <-setup.C:
		s.fail(&SessionError{Code: wire.CodeProtocol, Reason: fmt.Sprintf("the data streams were not opened within %v", s.mux.opt.Timing.Setup)})
	case <-s.done:
	}
	<-s.done
	s.teardown()
	cause := s.err()
	s.mux.uninstall(s, cause, wasUp)
	if wasUp {
		s.mux.opt.Handler.SessionDown(s, cause)
	}
	close(s.finished)
	return cause
}

const replacedReason = "a new session of the same peer replaces this one"

// install makes the session the one of its node, unless a later one came up
// before it. It waits until the session that it replaces is gone, so that the
// Handler sees one after the other.
func (m *Mux) install(s *session) bool {
	m.mu.Lock()
	old := m.current[s.node]
	if old != nil && old.made > s.made {
		m.mu.Unlock()
		s.Close(wire.CodeReplaced, replacedReason)
		return false
	}
	m.current[s.node] = s
	m.mu.Unlock()
	if old != nil {
		old.Close(wire.CodeReplaced, replacedReason)
		<-old.finished
	}
	select {
	case <-s.done:
		return false
	default:
	}
	s.announced.Store(true)
	s.link.setUp(s.raw.RemoteAddr().String())
	m.count.sessionsUp.Add(1)
	m.log.Info("session up", "peer", s.node, "session", s.id.String(), "remote", s.raw.RemoteAddr().String(),
		"encryption", string(s.Encryption()), "streams", s.nstreams)
	return true
}

func (m *Mux) uninstall(s *session, cause *SessionError, wasUp bool) {
	m.mu.Lock()
	delete(m.live, s)
	if m.accepted[s.id] == s {
		delete(m.accepted, s.id)
	}
	if m.current[s.node] == s {
		delete(m.current, s.node)
	}
	m.mu.Unlock()
	if wasUp {
		s.link.setDown(cause)
		m.count.sessionsDown.Add(1)
	} else {
		s.link.note(cause.Error())
	}
	m.log.Info("session ended", "peer", s.node, "session", s.id.String(), "was_up", wasUp, "error", cause)
}

// checkPin ends the session if its key is no longer pinned for its node.
func (s *session) checkPin() {
	if _, node, ok := s.mux.opt.Pins.Allowed(s.key, api.RolePeer); !ok || node != s.node {
		s.Close(wire.CodeUntrusted, "the key "+KeyString(s.key)+" of node "+s.node+" is no longer trusted on node "+s.mux.opt.Node)
	}
}

// fail begins the end of the session; the first cause counts.
func (s *session) fail(e *SessionError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause = e
		close(s.done)
	}
}

func (s *session) err() *SessionError {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// teardown closes the streams at once and leaves the control connection the time
// of a GOODBYE. It returns when no goroutine of the session runs and no sender
// reads its pages any more.
func (s *session) teardown() {
	s.mu.Lock()
	s.ending = true
	streams := make([]*stream, 0, len(s.streams))
	for _, st := range s.streams {
		streams = append(streams, st)
	}
	// Under mu, so that no loop sets a later deadline afterwards.
	deadlineErr := s.raw.SetDeadline(time.Now().Add(s.mux.opt.Timing.Linger))
	s.mu.Unlock()
	if deadlineErr != nil {
		s.mux.closeConn(s.raw)
	}
	for _, st := range streams {
		s.mux.closeConn(st.conn)
	}
	for range streams {
		<-s.free
	}
	s.wg.Wait()
	s.mux.closeConn(s.raw)
}

// setDeadline sets a deadline on the control connection unless the session is
// ending, which has set a nearer one.
func (s *session) setDeadline(set func(time.Time) error, d time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return nil
	}
	return set(time.Now().Add(d))
}

func (s *session) ID() wire.ID            { return s.id }
func (s *session) Peer() string           { return s.node }
func (s *session) Instance() wire.ID      { return s.instance }
func (s *session) Engines() []wire.Engine { return *s.engines.Load() }
func (s *session) Done() <-chan struct{}  { return s.done }

func (s *session) Encryption() api.Encryption { return encryptionName(s.encryption) }

func (s *session) Close(code wire.Code, reason string) {
	s.fail(&SessionError{Code: code, Reason: reason})
}

func (s *session) Send(m wire.Message) error {
	select {
	case <-s.done:
		return s.err()
	default:
	}
	err := s.out.push(m)
	if errors.Is(err, errOverflow) {
		s.mux.count.queueOverflows.Add(1)
		s.fail(&SessionError{Code: wire.CodeProtocol, Reason: err.Error(), Cause: err})
		return s.err()
	}
	return err
}

func (s *session) rtt() time.Duration { return s.ping.last() }

func (s *session) SendChunk(ctx context.Context, rank uint16, id wire.ID, offset int64, src [][]byte) error {
	return s.sendChunk(ctx, wire.ChunkHeader{Kind: wire.KindKV, Rank: rank, ID: id, Offset: offset}, src)
}

func encryptionName(e wire.Encryption) api.Encryption {
	if e == wire.EncryptionNone {
		return api.EncryptionNone
	}
	return api.EncryptionAEAD
}

// wireEncryption is strict about none: whatever is not exactly that is sealed.
func wireEncryption(e api.Encryption) wire.Encryption {
	if e == api.EncryptionNone {
		return wire.EncryptionNone
	}
	return wire.EncryptionAEAD
}
