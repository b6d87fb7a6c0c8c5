package enginesock

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// A daemon needs seconds to make a large arena. The session must live meanwhile.
func TestPingsWhileTheArenaIsMade(t *testing.T) {
	dir, err := os.MkdirTemp("", "es")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	pinged := make(chan error, 1)
	go func() { pinged <- awaitPing(l) }()
	w := NewWorker(Identity{Path: path, Hello: Hello{Engine: "e", Generation: "0", Session: Worker, World: 1, Fingerprint: kvcache.Fingerprint{}}}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	select {
	case err := <-pinged:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("no ping came")
	}
}

// awaitPing answers hello, and then nothing: the arena is being made.
func awaitPing(l *net.UnixListener) error {
	uc, err := l.AcceptUnix()
	if err != nil {
		return err
	}
	c := NewConn(uc)
	defer func() { _ = c.Close() }()
	asked := false
	for {
		b, f, err := c.Read()
		closeFile(f)
		if err != nil {
			return err
		}
		r, err := DecodeRequest(b)
		var refused *Refused // the test's hello names no real engine
		switch {
		case errors.As(err, &refused):
			ok, err := EncodeReply(&OK{Seq: refused.Seq, LeaseMillis: 40, Instance: "i"})
			if err == nil {
				err = c.Write(ok, nil)
			}
			if err != nil {
				return err
			}
		case err != nil:
			return err
		case r.Type() == TypeArena:
			asked = true
		case r.Type() == TypePing && asked:
			return nil
		}
	}
}
