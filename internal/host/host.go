package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

// Fixed places on a host.
const (
	MoaidPath    = "/opt/moai/bin/moaid"
	MarkerPath   = "/etc/moai/owner.json"
	UnitDir      = "/etc/systemd/system"
	lockPath     = "/run/moai-provider.lock"
	fencePath    = "/var/lib/moai/fence"
	lockTTL      = 60 * time.Second
	lockPoll     = 500 * time.Millisecond
	lockWait     = 2 * time.Minute
	releaseLimit = 10 * time.Second
)

// Runner is what a Host needs of a connection; *[ssh.Conn] is one.
type Runner interface {
	Run(ctx context.Context, cmd ssh.Cmd) (ssh.Result, error)
	DialCommand(ctx context.Context, argv []string, sudo bool) (net.Conn, error)
	Target() ssh.Target
	Redact(s string) string
}

var _ Runner = (*ssh.Conn)(nil)

// Options change fixed places and times; the zero value is right for production.
type Options struct {
	LockPath  string        // must not outlive a boot; default /run/moai-provider.lock
	FencePath string        // must outlive a boot; default /var/lib/moai/fence
	LockTTL   time.Duration // silence after which a lock's holder is dead, whole seconds; default 60 s
	LockPoll  time.Duration // between two tries to get the lock; default 0.5 s
	LockWait  time.Duration // patience for the lock; default 2 min
	Trees     []string      // directories that RemoveTree may remove, themselves or what is below
	ToolLimit int           // seconds for each tool of a probe; default 8
}

// Host is one machine. It is safe for concurrent use, but see [Host.Lock].
type Host struct {
	conn Runner
	opts Options

	local chan struct{} // of one: one writer of this process at a time

	mu    sync.Mutex
	token string // of the lock held now, or ""
	gzip  bool   // the host has gzip; learnt by Inspect
}

// New makes a Host over a connection. It does not dial.
func New(conn Runner, opts Options) *Host {
	def := func(p *time.Duration, d time.Duration) {
		if *p <= 0 {
			*p = d
		}
	}
	def(&opts.LockTTL, lockTTL)
	def(&opts.LockPoll, lockPoll)
	def(&opts.LockWait, lockWait)
	if opts.LockPath == "" {
		opts.LockPath = lockPath
	}
	if opts.FencePath == "" {
		opts.FencePath = fencePath
	}
	if opts.ToolLimit <= 0 {
		opts.ToolLimit = toolLimit
	}
	if opts.Trees == nil {
		opts.Trees = []string{"/opt/moai", "/etc/moai", "/var/lib/moai", "/run/moai"}
	}
	return &Host{conn: conn, opts: opts, local: make(chan struct{}, 1)}
}

// String names the machine in messages.
func (h *Host) String() string { return h.conn.Target().String() }

// Conn returns the connection.
func (h *Host) Conn() Runner { return h.conn }

// DialManagement opens a connection to the daemon's management API: the stdin and stdout of "moaid dial", as root.
func (h *Host) DialManagement(ctx context.Context) (net.Conn, error) {
	return h.conn.DialCommand(ctx, []string{MoaidPath, "dial"}, true)
}

// Exec runs a program as root and returns its standard output. A non-zero exit status is an *[Error].
func (h *Host) Exec(ctx context.Context, argv ...string) ([]byte, error) {
	res, err := h.conn.Run(ctx, ssh.Cmd{Argv: argv, Sudo: true})
	if err != nil {
		return nil, err
	}
	if res.ExitCode != 0 {
		return nil, h.failed("run", strings.Join(argv, " "), res)
	}
	return res.Stdout, nil
}

// The kinds of failure of a verb, for errors.Is. Failures of the connection keep their classes of package ssh.
var (
	// ErrLocked: somebody else holds the host's lock.
	ErrLocked = errors.New("host is locked")
	// ErrLockLost: another run took the lock over; nothing was written.
	ErrLockLost = errors.New("host's lock was lost")
	// ErrCannotAsk: the host could not say whether something is there.
	ErrCannotAsk = errors.New("host could not tell")
	// ErrConflict: something else is in the way, or what arrived is not what was sent.
	ErrConflict = errors.New("refused")
)

// Error is a verb that the host answered with a failure.
type Error struct {
	Host    string
	Verb    string // as in scripts/
	Subject string // path, unit or user
	Exit    int
	Said    string // the last of its standard error, redacted
}

// Error implements error.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s %s failed", e.Host, e.Verb, e.Subject)
	if e.Said == "" {
		return fmt.Sprintf("%s with exit status %d", s, e.Exit)
	}
	return s + ": " + e.Said
}

// Is maps exit statuses of the scripts to the kinds of failure.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrConflict:
		return e.Exit == 65
	case ErrLockLost:
		return e.Exit == 73
	case ErrCannotAsk:
		return e.Exit == 74 || e.Exit == 75
	}
	return false
}

func (h *Host) failed(verb, subject string, res ssh.Result) error {
	said := strings.TrimSpace(string(res.Stderr))
	if said == "" {
		said = strings.TrimSpace(string(res.Stdout))
	}
	if over := len(said) - 2000; over > 0 {
		said = "…" + said[over:]
	}
	return &Error{Host: h.String(), Verb: verb, Subject: subject, Exit: res.ExitCode, Said: h.conn.Redact(said)}
}

// call runs a verb. subject is for messages.
func (h *Host) call(ctx context.Context, verb, subject string, stdin io.Reader, args ...string) (ssh.Result, error) {
	h.mu.Lock()
	token := h.token
	h.mu.Unlock()
	if token == "" {
		token = "-"
	}
	return h.callAs(ctx, token, verb, subject, stdin, args...)
}

func (h *Host) callAs(ctx context.Context, token, verb, subject string, stdin io.Reader, args ...string) (ssh.Result, error) {
	res, err := h.conn.Run(ctx, ssh.Cmd{
		Script: script(verb), Args: append([]string{token, h.opts.LockPath}, args...), Stdin: stdin, Sudo: true,
	})
	if err != nil {
		return res, fmt.Errorf("%s %s: %w", verb, subject, err)
	}
	if res.ExitCode != 0 {
		return res, h.failed(verb, subject, res)
	}
	return res, nil
}

// word is the one-line answer of verbs that say what they did.
func word(res ssh.Result) string { return strings.TrimSpace(string(res.Stdout)) }

// unexpected is an answer that no script gives: something printed on its own, or another program answered.
func (h *Host) unexpected(verb, subject string, res ssh.Result) error {
	res.Stderr = fmt.Appendf(nil, "answer not understood: %.200q", res.Stdout)
	res.ExitCode = 74
	return h.failed(verb, subject, res)
}
