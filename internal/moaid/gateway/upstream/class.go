package upstream

import (
	"context"
	"errors"
	"net"
	"os"
)

// Class is a kind of failure, short enough for a metric's label.
type Class string

// Classes.
const (
	ClassKey       Class = "key"       // another key than the pinned one
	ClassDial      Class = "dial"      // no connection
	ClassTimeout   Class = "timeout"   // connected, but too late
	ClassCut       Class = "cut"       // the connection broke
	ClassStatus    Class = "status"    // an answer with an error status
	ClassCancelled Class = "cancelled" // by us, since the client left
)

// Classify sorts the error of a request.
func Classify(err error) Class {
	var key *KeyError
	var dial *DialError
	var ne net.Error
	switch {
	case errors.As(err, &key):
		return ClassKey
	case errors.Is(err, context.Canceled):
		return ClassCancelled
	case errors.As(err, &dial):
		return ClassDial
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &ne) && ne.Timeout():
		return ClassTimeout
	}
	return ClassCut
}

// Down reports whether err shows that nothing is to be had from the node now. A
// connection that was only too late does not: the node may be busy.
func Down(err error) bool {
	var ne net.Error
	c := Classify(err)
	late := errors.As(err, &ne) && ne.Timeout()
	return c == ClassKey || c == ClassDial && !late
}

// Unreachable reports whether the daemon cannot have seen the request.
func (c Class) Unreachable() bool { return c == ClassKey || c == ClassDial }
