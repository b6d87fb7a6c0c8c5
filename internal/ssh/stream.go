package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"golang.org/x/crypto/ssh"
)

// stderrKept bounds what is remembered of a stream command's error output.
const stderrKept = 4 << 10

// DialCommand runs argv and returns its standard input and output as a connection. The context bounds the set-up only.
// Deadlines work as on any connection. Closing it ends the command. When the command fails by itself, Read returns its
// exit status and last words in place of io.EOF, as [ErrCommand]; when the connection ended, [ErrDropped].
//
// At most three such connections to a target are open at once; further calls wait.
func (c *Conn) DialCommand(ctx context.Context, argv []string, sudo bool) (net.Conn, error) {
	mode := sudoRoot
	if sudo {
		l, err := c.get(ctx)
		if err != nil {
			return nil, err
		}
		if mode, err = c.become(ctx, l); err != nil {
			return nil, err
		}
	}
	if err := acquire(ctx, c.streams); err != nil {
		return nil, cancelled(c.target, StepSession, err)
	}
	p, err := c.start(ctx, argv, mode)
	if err != nil {
		<-c.streams
		return nil, err
	}
	errs := &tail{limit: stderrKept}
	gated := make(chan error, 1)
	go func() { gated <- p.gate(errs, c.target.Become.Password) }()
	select {
	case err = <-gated:
	case <-ctx.Done():
		err = cancelled(c.target, StepSudo, ctx.Err())
	}
	if err != nil {
		p.kill()
		<-c.streams
		var own *Error
		if !errors.As(err, &own) {
			err = &Error{Class: ErrSudo, Target: c.target.String(), Step: StepSudo, Attribute: "become.password", Err: &redacted{err, c.redactor}}
		}
		return nil, err
	}
	near, far := net.Pipe()
	s := &stream{Conn: near, p: p, addr: commandAddr(c.target.String() + " " + argv[0]), ended: make(chan struct{})}
	s.release = sync.OnceFunc(func() { <-c.streams })
	go s.run(c, far, errs)
	return s, nil
}

// stream is one end of a pipe whose other end is copied to and from the command: the pipe brings the deadlines.
type stream struct {
	net.Conn
	p       *process
	addr    commandAddr
	release func()
	ended   chan struct{}
	err     error // why the command ended; valid after ended is closed
}

func (s *stream) run(c *Conn, far net.Conn, errs *tail) {
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(errs, s.p.stderr) })
	go func() {
		_, _ = io.Copy(s.p.stdin, far)
		_ = s.p.stdin.Close()
	}()
	_, _ = io.Copy(far, s.p.stdout)
	wg.Wait()
	if err := s.p.session.Wait(); err != nil {
		class, text := ErrDropped, err.Error()
		var exit *ssh.ExitError
		if errors.As(err, &exit) {
			class = ErrCommand
		}
		if said := errs.String(); said != "" {
			text = fmt.Sprintf("%s: %s", text, said)
		}
		s.err = &Error{Class: class, Target: c.target.String(), Step: StepRun, Err: errors.New(c.Redact(text))}
	}
	close(s.ended)
	_ = far.Close()
	_ = s.p.session.Close()
	s.release()
}

// Read implements net.Conn.
func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	return n, s.reason(err, io.EOF)
}

// Write implements net.Conn. A client that writes first learns here why the command ended.
func (s *stream) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	return n, s.reason(err, io.ErrClosedPipe)
}

// reason puts the command's own failure in the place of the error by which the pipe shows that it ended.
func (s *stream) reason(err, end error) error {
	if errors.Is(err, end) {
		select {
		case <-s.ended:
			if s.err != nil {
				return s.err
			}
		default:
		}
	}
	return err
}

// Close ends the command.
func (s *stream) Close() error {
	err := s.Conn.Close()
	s.p.kill()
	s.release()
	return err
}

// RemoteAddr names the target and the program.
func (s *stream) RemoteAddr() net.Addr { return s.addr }

// LocalAddr is the same as RemoteAddr: the connection has no address of its own.
func (s *stream) LocalAddr() net.Addr { return s.addr }

type commandAddr string

func (a commandAddr) Network() string { return "ssh-command" }
func (a commandAddr) String() string  { return string(a) }

// tail keeps the last bytes written to it.
type tail struct {
	mu    sync.Mutex
	buf   []byte
	limit int
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - t.limit; over > 0 {
		t.buf = append([]byte(nil), t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return clip(t.buf)
}
