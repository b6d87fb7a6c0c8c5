package transport

import (
	"errors"
	"fmt"
	"net"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// SessionError says why a session ended. It unwraps to net.ErrClosed and to its
// cause.
type SessionError struct {
	Code   wire.Code
	Remote bool // the peer ended it
	Reason string
	Cause  error
}

func (e *SessionError) Error() string {
	who := "we ended the session"
	if e.Remote {
		who = "the peer ended the session"
	}
	return fmt.Sprintf("%s: %s (%s)", who, e.Reason, e.Code)
}

// Unwrap gives net.ErrClosed and the cause.
func (e *SessionError) Unwrap() []error {
	if e.Cause == nil {
		return []error{net.ErrClosed}
	}
	return []error{net.ErrClosed, e.Cause}
}

// ErrNoSession says that no session with the node is up.
var ErrNoSession = errors.New("no session with the peer is up")

// ErrProbing says that a probe of the same session is running.
var ErrProbing = errors.New("a probe is already running on this session")

// violation gives an error the code that its session ends with.
func violation(err error) *SessionError {
	var w *wire.Error
	if errors.As(err, &w) {
		return &SessionError{Code: w.Code, Reason: err.Error(), Cause: err}
	}
	return &SessionError{Code: wire.CodeProtocol, Reason: err.Error(), Cause: err}
}
