package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// helloError is a failure after our side of the handshake: in TLS 1.3 the peer
// judges our key only then.
type helloError struct{ err error }

func (e *helloError) Error() string { return e.err.Error() }
func (e *helloError) Unwrap() error { return e.err }

// asSessionError keeps an ending that is one already.
func asSessionError(err error) *SessionError {
	var se *SessionError
	if errors.As(err, &se) {
		return se
	}
	return violation(err)
}

// explainDial says in one sentence, with the address, what went wrong.
func (m *Mux) explainDial(address string, err error) string {
	var (
		ke     *keyError
		se     *SessionError
		he     *helloError
		op     *net.OpError
		record interface{ Timeout() bool }
	)
	ours := m.opt.Identity.PublicString()
	switch {
	case errors.Is(err, context.Canceled):
		return "dialling " + address + " was stopped"
	case errors.As(err, &se):
		return "peer at " + address + ": " + se.Error()
	case errors.As(err, &ke):
		return "peer at " + address + " " + ke.reason
	case errors.Is(err, syscall.ECONNREFUSED):
		return address + " refused the connection: nothing listens there, or a firewall answers for it"
	case errors.As(err, &op) && op.Op == "remote error":
		return fmt.Sprintf("peer at %s refused our key: it does not trust %s as a peer (%v)", address, ours, op.Err)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &record) && record.Timeout():
		return "timed out: no answer from " + address
	case errors.As(err, &he) && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)):
		return fmt.Sprintf("peer at %s closed the connection before its HELLO: it may not trust our key %s, see its log", address, ours)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "peer at " + address + " closed the connection during the handshake: it may be no moaid, or be full"
	}
	return "peer at " + address + ": " + err.Error()
}
