package sshtest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// Handle is the machine's [Handler].
func (m *Machine) Handle(r *Request) int {
	argv := r.Argv
	root := r.User == "root"
	if len(argv) > 0 && argv[0] == "sudo" {
		var code int
		if argv, code = m.sudo(r, argv); argv == nil {
			return code
		}
		root = true
	}
	if len(argv) == 0 {
		return Unmatched
	}
	if argv[0] == "sh" {
		return m.shell(r, argv, root)
	}
	return m.program(r, argv)
}

// sudo answers "sudo -n -- …" and "sudo -S -p PROMPT -- sh -c READY moai …", and returns the command behind it.
func (m *Machine) sudo(r *Request, argv []string) ([]string, int) {
	say := func(s string) { _, _ = io.WriteString(r.Stderr, s) }
	if m.NoSudo {
		say("sudo: " + r.User + " is not in the sudoers file.\n")
		return nil, 1
	}
	switch {
	case len(argv) > 3 && argv[1] == "-n" && argv[2] == "--":
		if m.SudoPassword != "" {
			say("sudo: a password is required\n")
			return nil, 1
		}
		return argv[3:], 0
	case len(argv) > 9 && argv[1] == "-S" && argv[2] == "-p" && argv[4] == "--":
		if m.SudoPassword != "" && !m.askPassword(r, argv[3], m.SudoPassword) {
			say("sudo: 1 incorrect password attempt\n")
			return nil, 1
		}
		say("[moai:ready]\n")
		return argv[9:], 0
	}
	return nil, Unmatched
}

// askPassword reads one line byte by byte, as sudo does: what follows is the command's.
func (m *Machine) askPassword(r *Request, prompt, want string) bool {
	for range 3 {
		_, _ = io.WriteString(r.Stderr, prompt)
		var line []byte
		b := make([]byte, 1)
		for {
			if _, err := io.ReadFull(r.Stdin, b); err != nil {
				return false
			}
			if b[0] == '\n' {
				break
			}
			line = append(line, b[0])
		}
		if string(line) == want {
			return true
		}
	}
	return false
}

// shell answers "sh -c SCRIPT moai ARGS…" by the script's name.
func (m *Machine) shell(r *Request, argv []string, root bool) int {
	if len(argv) < 4 || argv[1] != "-c" {
		return Unmatched
	}
	first, _, _ := strings.Cut(argv[2], "\n")
	verb, ok := strings.CutPrefix(first, "# moai:")
	if !ok {
		return Unmatched
	}
	args := argv[4:]
	if verb == "become" {
		return m.become(r)
	}
	if !root {
		_, _ = fmt.Fprintf(r.Stderr, "moai: %s needs root\n", verb)
		return 74
	}
	if len(args) < 2 {
		return Unmatched
	}
	c := &call{m: m, r: r, verb: verb, token: args[0], args: args[2:]}
	if reply, fail := m.record(verb, c.args); fail {
		_, _ = io.WriteString(r.Stdout, reply.Stdout)
		_, _ = io.WriteString(r.Stderr, reply.Stderr)
		return reply.Exit
	}
	do, ok := verbs[verb]
	if !ok {
		return Unmatched
	}
	return do(c)
}

func (m *Machine) become(r *Request) int {
	_, _ = m.record("become", nil)
	answer := "free"
	switch {
	case r.User == "root":
		answer = "root"
	case m.NoSudo:
		answer = "asks sudo: " + r.User + " is not in the sudoers file."
	case m.SudoPassword != "":
		answer = "asks sudo: a password is required"
	}
	_, _ = fmt.Fprintln(r.Stdout, answer)
	return 0
}

// record notes a call and takes the failure that was ordered for it, if any.
func (m *Machine) record(verb string, args []string) (Reply, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, Call{Verb: verb, Args: slices.Clone(args)})
	_, script := verbs[verb]
	write := script && !slices.Contains(reads, verb)
	if m.left > 0 && write {
		if m.left--; m.left == 0 {
			m.cut = true
		}
	}
	if m.cut && (write || verb == "lock") {
		return Reply{Stderr: "the run was killed", Exit: 137}, true
	}
	queue := m.failures[verb]
	if len(queue) == 0 {
		return Reply{}, false
	}
	m.failures[verb] = queue[1:]
	return queue[0], true
}

func (m *Machine) program(r *Request, argv []string) int {
	name := path.Base(argv[0])
	if reply, fail := m.record(name, argv[1:]); fail {
		_, _ = io.WriteString(r.Stdout, reply.Stdout)
		_, _ = io.WriteString(r.Stderr, reply.Stderr)
		return reply.Exit
	}
	if name == "moaid" && len(argv) > 1 && argv[1] == "dial" {
		return m.dial(r, argv[0])
	}
	m.mu.Lock()
	p, ok := m.programs[argv[0]]
	if !ok {
		p, ok = m.programs[name]
	}
	m.mu.Unlock()
	if !ok && name == "true" {
		return 0
	}
	if !ok {
		return Unmatched
	}
	stdout, stderr, code := p(argv[1:], r.Stdin)
	_, _ = io.WriteString(r.Stdout, stdout)
	_, _ = io.WriteString(r.Stderr, stderr)
	return code
}

// dial serves the management API over the command's standard input and output.
func (m *Machine) dial(r *Request, binary string) int {
	if _, ok := m.File(binary); !ok {
		_, _ = fmt.Fprintf(r.Stderr, "sh: %s: not found\n", binary)
		return 127
	}
	if m.Management == nil {
		_, _ = io.WriteString(r.Stderr, "moaid: dial /run/moai/manage.sock: connect: no such file or directory\n")
		return 1
	}
	c := &stdio{r: r.Stdin, w: r.Stdout, closed: make(chan struct{})}
	l := &oneConn{c: c}
	srv := &http.Server{Handler: m.Management, ReadHeaderTimeout: time.Minute}
	go func() {
		select {
		case <-r.Killed:
			_ = c.Close()
		case <-c.closed:
		}
	}()
	_ = srv.Serve(l) // returns when the only connection was accepted
	<-c.closed
	_ = srv.Close()
	return 0
}

// stdio is a connection over a command's streams. Deadlines do nothing: the client has its own.
type stdio struct {
	r      io.Reader
	w      io.Writer
	once   sync.Once
	closed chan struct{}
}

func (s *stdio) Read(p []byte) (int, error)  { return s.r.Read(p) }
func (s *stdio) Write(p []byte) (int, error) { return s.w.Write(p) }
func (s *stdio) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}
func (s *stdio) LocalAddr() net.Addr              { return stdioAddr{} }
func (s *stdio) RemoteAddr() net.Addr             { return stdioAddr{} }
func (s *stdio) SetDeadline(time.Time) error      { return nil }
func (s *stdio) SetReadDeadline(time.Time) error  { return nil }
func (s *stdio) SetWriteDeadline(time.Time) error { return nil }

type stdioAddr struct{}

func (stdioAddr) Network() string { return "stdio" }
func (stdioAddr) String() string  { return "stdio" }

// oneConn is a listener that has one connection.
type oneConn struct {
	c    net.Conn
	used bool
}

func (l *oneConn) Accept() (net.Conn, error) {
	if l.used {
		return nil, net.ErrClosed
	}
	l.used = true
	return l.c, nil
}
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return stdioAddr{} }
