package enginesock

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// The event that told an id's end can be lost with its session. The client asks
// again, and learns of the end from the refusal.
func TestEndsThatWereLostAreLearnt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	const kept, withdrawn = "00000000000000000000000000000001", "00000000000000000000000000000002"
	changed := make(chan struct{}, 1)
	c := NewScheduler(Identity{Path: path, Hello: Hello{Engine: "e", Generation: testID, Session: Scheduler, World: 1}}, nil, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	until := func(what string, ok func() bool) {
		t.Helper()
		for late := time.After(10 * time.Second); !ok(); {
			select {
			case <-changed:
			case <-late:
				t.Fatal("never: " + what)
			}
		}
	}
	first := accept(t, l)
	served := make(chan error, 2)
	go func() { served <- serveReserves(first, nil) }()
	for _, id := range []string{kept, withdrawn} {
		c.Reserve(id, 1, nil)
		until("pages are there", func() bool { s, _ := c.Sending(id); return s.Extents != nil })
	}
	c.Withdraw(withdrawn, "the client left")
	_ = first.Close()
	<-served
	go func() { served <- serveReserves(accept(t, l), &Error{Code: CodeConflict, Message: "it has ended"}) }()
	for _, id := range []string{kept, withdrawn} {
		until("the end of "+id, func() bool { s, _ := c.Sending(id); return s.Ended != nil && s.Err == nil })
	}
	cancel()
	<-served
}

func accept(t *testing.T, l *net.UnixListener) *Conn {
	uc, err := l.AcceptUnix()
	if err != nil {
		t.Error(err)
		return nil
	}
	return NewConn(uc)
}

// serveReserves is a daemon that gives pages, or refuses with e, and takes
// everything else.
func serveReserves(c *Conn, e *Error) error {
	if c == nil {
		return errors.New("no connection")
	}
	defer func() { _ = c.Close() }()
	for {
		b, _, err := c.Read()
		if err != nil {
			return err
		}
		r, err := DecodeRequest(b)
		if err != nil {
			return err
		}
		ok := &OK{Seq: r.SeqNumber(), Instance: "i", LeaseMillis: 10000}
		var answer Reply = ok
		switch {
		case r.Type() == TypeReserve && e != nil:
			answer = &Error{Seq: r.SeqNumber(), Code: e.Code, Message: e.Message}
		case r.Type() == TypeReserve:
			ok.Extents = [][]Extent{{{Length: 1}}}
		}
		if b, err = EncodeReply(answer); err != nil {
			return err
		}
		if err := c.Write(b, nil); err != nil {
			return err
		}
	}
}
