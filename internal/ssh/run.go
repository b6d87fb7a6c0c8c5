package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// Cmd is one remote command: either Argv, or a POSIX shell Script with arguments. No environment is passed.
type Cmd struct {
	Argv   []string
	Script string   // run as sh -c Script moai Args…
	Args   []string // $1, $2, … of Script
	Stdin  io.Reader
	Sudo   bool // run as root, as the target's Become says
}

func (c Cmd) argv() ([]string, error) {
	switch {
	case c.Script != "" && len(c.Argv) > 0:
		return nil, errors.New("a command has either Argv or Script")
	case c.Script != "":
		return append([]string{"sh", "-c", c.Script, "moai"}, c.Args...), nil
	case len(c.Args) > 0:
		return nil, errors.New("arguments go with a script; give Argv whole")
	}
	return c.Argv, nil
}

// Result is what a command left behind. A command that a signal ended has exit code 128 + signal.
type Result struct {
	Stdout   []byte
	Stderr   []byte
	ExitCode int
}

// killGrace is how long a killed command's last output is waited for.
const killGrace = time.Second

// Run runs one command and waits for its exit status. A non-zero exit status is not an error. Errors are of the classes
// of setting a connection up, or [ErrDropped] when the connection ended or no exit status came (the command may have
// run), [ErrOutput], or the context's own error, when the remote side is sent SIGTERM and its session is closed. With
// an error, Result holds the output that came. Stdin must end or fail by itself.
func (c *Conn) Run(ctx context.Context, cmd Cmd) (Result, error) {
	mode := sudoRoot
	if cmd.Sudo {
		l, err := c.get(ctx)
		if err != nil {
			return Result{}, err
		}
		if mode, err = c.become(ctx, l); err != nil {
			return Result{}, err
		}
	}
	return c.runOn(ctx, cmd, mode)
}

func (c *Conn) runOn(ctx context.Context, cmd Cmd, mode sudoMode) (Result, error) {
	argv, err := cmd.argv()
	if err != nil {
		return Result{}, c.runError(ErrConfig, err, "")
	}
	if err := acquire(ctx, c.commands); err != nil {
		return Result{}, cancelled(c.target, StepSession, err)
	}
	defer func() { <-c.commands }()
	p, err := c.start(ctx, argv, mode)
	if err != nil {
		return Result{}, err
	}
	out, errs := &capture{limit: c.pool.opts.OutputLimit}, &capture{limit: c.pool.opts.OutputLimit}
	done := make(chan struct{})
	var ended error // valid after done
	go func() {
		defer close(done)
		ended = p.drive(cmd.Stdin, out, errs, c.target.Become.Password)
	}()
	select {
	case <-done:
		p.end()
	case <-ctx.Done():
		p.kill()
		timer := time.NewTimer(killGrace)
		select {
		case <-done:
		case <-timer.C:
		}
		timer.Stop()
		res := Result{Stdout: out.bytes(), Stderr: errs.bytes(), ExitCode: -1}
		return res, c.runError(contextClass(ctx.Err()), ctx.Err(), "")
	}
	res := Result{Stdout: out.bytes(), Stderr: errs.bytes()}
	var exit *ssh.ExitError
	var missing *ssh.ExitMissingError
	err = ended
	switch {
	case err == nil:
		return res, nil
	case errors.As(err, &exit):
		res.ExitCode = exit.ExitStatus()
		return res, nil
	}
	res.ExitCode = -1
	var own *Error
	switch {
	case errors.As(err, &own):
		return res, err
	case errors.Is(err, errLimit):
		return res, c.runError(ErrOutput, err, "")
	case errors.Is(err, errSudoGate):
		return res, &Error{Class: ErrSudo, Target: c.target.String(), Step: StepSudo, Attribute: "become.password",
			Err: errors.New(c.Redact(err.Error())), Fix: "Check become.password and the host's sudoers"}
	case errors.Is(err, errStdin):
		return res, c.runError(ErrConfig, err, "The input could not be read on this side; the command was killed")
	case errors.As(err, &missing) || errors.Is(err, io.EOF):
		err = errors.New("no exit status came")
	}
	return res, c.runError(ErrDropped, err, "The command may or may not have run; look at the host before repeating it by hand")
}

func (c *Conn) runError(class, err error, fix string) error {
	return &Error{Class: class, Target: c.target.String(), Step: StepRun, Err: &redacted{err, c.redactor}, Fix: fix}
}

// redacted shows an error without the target's secrets and keeps it for errors.Is.
type redacted struct {
	err error
	r   *Redactor
}

func (e *redacted) Error() string { return e.r.String(e.err.Error()) }
func (e *redacted) Unwrap() error { return e.err }

func acquire(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// process is one started remote command.
type process struct {
	session *ssh.Session
	stdin   io.WriteCloser
	stdout  io.Reader
	stderr  io.Reader
	mode    sudoMode
}

func (c *Conn) start(ctx context.Context, argv []string, mode sudoMode) (*process, error) {
	line, err := Join(wrapSudo(argv, mode))
	if err != nil {
		return nil, c.runError(ErrConfig, err, "")
	}
	_, s, err := c.session(ctx)
	if err != nil {
		return nil, err
	}
	p := &process{session: s, mode: mode}
	if p.stdin, err = s.StdinPipe(); err == nil {
		if p.stdout, err = s.StdoutPipe(); err == nil {
			p.stderr, err = s.StderrPipe()
		}
	}
	if err != nil {
		_ = s.Close()
		return nil, c.runError(ErrUnreachable, err, "")
	}
	started := make(chan error, 1)
	go func() { started <- s.Start(line) }()
	select {
	case err = <-started:
	case <-ctx.Done():
		p.kill()
		return nil, cancelled(c.target, StepSession, ctx.Err())
	}
	if err != nil {
		_ = s.Close()
		return nil, c.runError(ErrDropped, fmt.Errorf("start: %w", err), "")
	}
	return p, nil
}

var (
	errLimit    = errors.New("command wrote more than the limit")
	errSudoGate = errors.New("sudo")
	errStdin    = errors.New("read input")
)

// gate lets a sudo that asks for a password have it.
func (p *process) gate(stderr io.Writer, password Secret) error {
	if p.mode != sudoPassword {
		return nil
	}
	rest, err := passGate(p.stderr, p.stdin, password)
	if err != nil {
		p.kill()
		return fmt.Errorf("%w: %w", errSudoGate, err)
	}
	if _, err := stderr.Write(rest); err != nil {
		return err
	}
	return nil
}

// drive moves the three streams until the command has ended, and returns how it ended.
func (p *process) drive(stdin io.Reader, stdout, stderr io.Writer, password Secret) error {
	if err := p.gate(stderr, password); err != nil {
		return err
	}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		first error
	)
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if first == nil {
			first = err
			p.kill()
		}
	}
	pull := func(dst io.Writer, src io.Reader) {
		if _, err := io.Copy(dst, src); err != nil && errors.Is(err, errLimit) {
			fail(err)
		}
	}
	wg.Go(func() { pull(stdout, p.stdout) })
	wg.Go(func() { pull(stderr, p.stderr) })
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		if stdin != nil {
			src := &source{r: stdin}
			_, err := io.Copy(p.stdin, src)
			if src.err != nil {
				fail(fmt.Errorf("%w: %w", errStdin, src.err))
			}
			_ = err // a command may end without reading its input; its exit status tells
		}
		_ = p.stdin.Close()
	}()
	wg.Wait()
	err := p.session.Wait()
	_ = p.session.Close()
	<-fed
	mu.Lock()
	defer mu.Unlock()
	if first != nil {
		return first
	}
	return err
}

// source tells a failure to read the input from a failure to write it.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

func (p *process) end() { _ = p.session.Close() }

// kill asks the remote side to end the command and closes the session. It does not wait: the transport may be stuck.
func (p *process) kill() {
	go func() {
		_ = p.session.Signal(ssh.SIGTERM)
		_ = p.session.Close()
	}()
}

// capture keeps output up to a limit. It can be read while it is written.
type capture struct {
	mu    sync.Mutex
	buf   []byte
	limit int
}

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if room := c.limit - len(c.buf); len(p) > room {
		c.buf = append(c.buf, p[:room]...)
		return room, fmt.Errorf("%w of %d bytes", errLimit, c.limit)
	}
	c.buf = append(c.buf, p...)
	return len(p), nil
}

func (c *capture) bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]byte(nil), c.buf...)
}
