package ssh

import (
	"context"
	"errors"
	"strings"
)

// The classes of failure. Test for them with [errors.Is].
var (
	// ErrConfig: the target cannot work as written (no key, bad key, bad known-hosts text).
	ErrConfig = errors.New("connection settings are wrong")
	// ErrHostKey: the host presented a key that is unknown, revoked or not the pinned one.
	ErrHostKey = errors.New("host key not accepted")
	// ErrAuth: the host was reached and verified, and refused the user's key.
	ErrAuth = errors.New("authentication refused")
	// ErrUnreachable: no connection could be made, or it ended while being set up.
	ErrUnreachable = errors.New("host unreachable")
	// ErrTimeout: a step did not finish within its time.
	ErrTimeout = errors.New("timed out")
	// ErrInterrupted: the caller gave up.
	ErrInterrupted = errors.New("interrupted")
	// ErrSudo: the user may not become root the way the target says.
	ErrSudo = errors.New("cannot become root")
	// ErrDropped: the connection ended while a command ran; its outcome is unknown and it is not run again.
	ErrDropped = errors.New("connection dropped while a command ran")
	// ErrCommand: a command behind a stream ended by itself with a failure; the connection is fine.
	ErrCommand = errors.New("command failed")
	// ErrOutput: a command wrote more than the limit.
	ErrOutput = errors.New("output too large")
	// ErrClosed: the pool was closed.
	ErrClosed = errors.New("connection pool closed")
)

// Step is the part of a connection's life in which an error happened.
type Step string

// The steps, in order.
const (
	StepConfig       Step = "configure"
	StepResolve      Step = "resolve"
	StepConnect      Step = "connect"
	StepHandshake    Step = "handshake"
	StepAuthenticate Step = "authenticate"
	StepSession      Step = "session"
	StepSudo         Step = "sudo"
	StepRun          Step = "run"
)

// Error says what failed, where and what to do. Its text holds no secret of the target.
type Error struct {
	Class     error  // one of the sentinels above
	Target    string // user@host:port, with the node's name when the target has one
	Step      Step
	Attribute string // the attribute to change, for example "ssh.host_key"; may be empty
	Fix       string // one sentence for the operator; may be empty
	Err       error  // the cause; may be nil
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("ssh " + e.Target + ": " + string(e.Step) + ": " + e.Class.Error())
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Fix != "" {
		b.WriteString(". " + e.Fix)
	}
	return b.String()
}

// Unwrap gives the class and the cause to errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Class}
	}
	return []error{e.Class, e.Err}
}

// Retryable reports whether the same attempt may succeed later without any change to the configuration. It is about
// setting up a connection: a command whose connection dropped is not retryable, because it may have run. A refused
// key is not retryable either: repeating it gets an address banned.
func Retryable(err error) bool {
	switch {
	case err == nil,
		errors.Is(err, ErrHostKey), errors.Is(err, ErrAuth), errors.Is(err, ErrConfig), errors.Is(err, ErrSudo),
		errors.Is(err, ErrDropped), errors.Is(err, ErrOutput), errors.Is(err, ErrClosed), errors.Is(err, ErrInterrupted),
		errors.Is(err, context.Canceled):
		return false
	}
	return errors.Is(err, ErrUnreachable) || errors.Is(err, ErrTimeout)
}
