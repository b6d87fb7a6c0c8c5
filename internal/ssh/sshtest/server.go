package sshtest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	xssh "golang.org/x/crypto/ssh"

	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

// TB is what a server needs of a test; *testing.T is one.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
	Cleanup(f func())
}

// Request is one command.
type Request struct {
	User   string
	Line   string   // as sent
	Argv   []string // Line split into words, or nil when it is not plain words
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Killed <-chan struct{} // closed when the client sent a signal or closed the session

	channel xssh.Channel
}

// Handler runs a command and returns its exit status. [Unmatched] means that there is no such command.
type Handler func(r *Request) int

// Unmatched is returned by a Handler for a command that it does not know: the test fails.
const Unmatched = -1

// Reply is a fixed answer.
type Reply struct {
	Stdout string
	Stderr string
	Exit   int
}

// Fault is what a server does wrong from now on. The zero value is a healthy server.
type Fault struct {
	RefuseAuth     bool // no key is good
	Silent         bool // accepts connections and never says a word
	CloseConns     int  // closes this many connections before the handshake
	RefuseSessions bool // opens no session
	StallSessions  bool // neither opens nor refuses sessions
	DropCommand    bool // runs the command and drops the connection before its exit status
	DropBefore     bool // drops the connection when a command comes, without running it
	NoExit         bool // ends commands without an exit status
	Mute           bool // answers no keepalive
}

// Server is an SSH server on a loopback address.
type Server struct {
	t       TB
	handler Handler
	ln      net.Listener
	client  xssh.PublicKey
	key     ssh.Secret
	wg      sync.WaitGroup

	mu       sync.Mutex
	hostKeys []xssh.Signer
	fault    Fault
	replies  map[string]Reply
	commands []string
	signals  []string
	accepted int
	conns    map[net.Conn]bool
	closed   bool
}

// New starts a server. h may be nil: then only what [Server.On] was told has an answer. It ends with the test.
func New(t TB, h Handler) *Server {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Errorf("sshtest: listen: %v", err)
		return nil
	}
	s := &Server{t: t, handler: h, ln: ln, replies: map[string]Reply{}, conns: map[net.Conn]bool{}}
	pair, err := clientKey()
	if err != nil {
		t.Errorf("sshtest: client key: %v", err)
	}
	s.client, s.key = pair.public, pair.private
	s.hostKeys = []xssh.Signer{newHostKey(t)}
	s.wg.Go(s.accept)
	t.Cleanup(s.Close)
	return s
}

func newHostKey(t TB) xssh.Signer {
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Errorf("sshtest: host key: %v", err)
	}
	signer, err := xssh.NewSignerFromKey(priv)
	if err != nil {
		t.Errorf("sshtest: host key: %v", err)
	}
	return signer
}

// clientKey is one for all servers of a process, as one profile of a fleet is.
var clientKey = sync.OnceValues(func() (clientPair, error) {
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return clientPair{}, err
	}
	block, err := xssh.MarshalPrivateKey(priv, "sshtest")
	if err != nil {
		return clientPair{}, err
	}
	key, err := xssh.NewPublicKey(pub)
	return clientPair{key, ssh.Secret(pem.EncodeToMemory(block))}, err
})

type clientPair struct {
	public  xssh.PublicKey
	private ssh.Secret
}

// Target is the way to the server, for user root.
func (s *Server) Target() ssh.Target {
	return ssh.Target{Name: "test", Host: s.Host(), Port: s.Port(), User: "root", PrivateKey: s.key, HostKey: s.HostKey()}
}

// Addr is host:port.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// Host is the address without port.
func (s *Server) Host() string {
	host, _, _ := net.SplitHostPort(s.Addr())
	return host
}

// Port is the TCP port.
func (s *Server) Port() int {
	_, p, _ := net.SplitHostPort(s.Addr())
	n, _ := strconv.Atoi(p)
	return n
}

// HostKey is the server's host key as a line "ssh-ed25519 AAAA…".
func (s *Server) HostKey() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimSpace(string(xssh.MarshalAuthorizedKey(s.hostKeys[0].PublicKey())))
}

// Fingerprint is the SHA256 fingerprint of the host key.
func (s *Server) Fingerprint() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return xssh.FingerprintSHA256(s.hostKeys[0].PublicKey())
}

// ClientKey is the one private key that may log in, as any user. All servers of a process accept the same.
func (s *Server) ClientKey() ssh.Secret { return s.key }

// RotateHostKey gives the server another host key for connections from now on.
func (s *Server) RotateHostKey() {
	key := newHostKey(s.t)
	s.SetHostKeys(key)
}

// SetHostKeys replaces the host keys for connections from now on.
func (s *Server) SetHostKeys(keys ...xssh.Signer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hostKeys = keys
}

// Set replaces the server's faults.
func (s *Server) Set(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// On answers a command line, exactly as sent, always the same way.
func (s *Server) On(line string, r Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies[line] = r
}

// Commands are the lines received so far.
func (s *Server) Commands() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.commands...)
}

// Signals are the signals received so far.
func (s *Server) Signals() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.signals...)
}

// Accepted is the number of connections accepted so far.
func (s *Server) Accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// DropAll cuts all connections; the server goes on listening.
func (s *Server) DropAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

// Close ends the server and waits for it. Closing twice is harmless.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_ = s.ln.Close()
	s.DropAll()
	s.wg.Wait()
}

func (s *Server) accept() {
	for {
		c, err := s.ln.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = c.Close()
			return
		}
		s.accepted++
		s.conns[c] = true
		drop := s.fault.CloseConns > 0
		if drop {
			s.fault.CloseConns--
		}
		silent := s.fault.Silent
		s.mu.Unlock()
		s.wg.Go(func() {
			defer s.forget(c)
			switch {
			case drop:
			case silent:
				_, _ = io.Copy(io.Discard, c) // until the client gives up
			default:
				s.serve(c)
			}
		})
	}
}

func (s *Server) forget(c net.Conn) {
	_ = c.Close()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

func (s *Server) faults() Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}

func (s *Server) config() *xssh.ServerConfig {
	cfg := &xssh.ServerConfig{
		PublicKeyCallback: func(_ xssh.ConnMetadata, key xssh.PublicKey) (*xssh.Permissions, error) {
			if s.faults().RefuseAuth || string(key.Marshal()) != string(s.client.Marshal()) {
				return nil, errors.New("no such key")
			}
			return &xssh.Permissions{}, nil
		},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.hostKeys {
		cfg.AddHostKey(k)
	}
	return cfg
}

func (s *Server) serve(raw net.Conn) {
	conn, chans, reqs, err := xssh.NewServerConn(raw, s.config())
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.global(reqs) })
	for ch := range chans {
		wg.Go(func() { s.channel(conn, raw, ch) })
	}
	wg.Wait()
}

func (s *Server) global(reqs <-chan *xssh.Request) {
	for r := range reqs {
		if s.faults().Mute {
			continue
		}
		if r.WantReply {
			_ = r.Reply(false, nil)
		}
	}
}
