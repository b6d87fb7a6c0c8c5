package enginesock

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// What was stored while there was no session is told when it is there, also if
// it is more than one packet holds.
func TestManyStoredRangesAfterASilence(t *testing.T) {
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
	const want = 3500
	w := NewWorker(Identity{Path: path, Hello: Hello{Engine: "e", Generation: "0", Session: Worker, World: 1}}, nil)
	id := "0123456789abcdef0123456789abcdef"
	for i := range want {
		w.Stored(id, []kvcache.Range{{Offset: math.MaxInt64/2 + int64(2*i), Length: 1}})
	}
	told := make(chan error, 1)
	go func() { told <- takeStored(l, want) }()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	select {
	case err := <-told:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("not all ranges were told")
	}
}

// takeStored is a daemon that counts ranges until there are as many as wanted.
func takeStored(l *net.UnixListener, want int) error {
	uc, err := l.AcceptUnix()
	if err != nil {
		return err
	}
	c := NewConn(uc)
	defer func() { _ = c.Close() }()
	fd, err := unix.MemfdCreate("t", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	arena := os.NewFile(uintptr(fd), "t")
	defer func() { _ = arena.Close() }()
	if err := arena.Truncate(4096); err != nil {
		return err
	}
	for n := 0; n < want; {
		b, f, err := c.Read()
		closeFile(f)
		if err != nil {
			return err
		}
		answer, file := &OK{LeaseMillis: 10_000, Instance: "i"}, (*os.File)(nil)
		r, err := DecodeRequest(b)
		var refused *Refused // the test's hello names no real engine
		switch {
		case errors.As(err, &refused):
			answer.Seq = refused.Seq
		case err != nil:
			return err
		default:
			answer.Seq = r.SeqNumber()
			if s, ok := r.(*Stored); ok {
				n += len(s.Ranges)
			}
			if r.Type() == TypeArena {
				answer.Arena, answer.Bytes, file = "a", 4096, arena
			}
		}
		if b, err = EncodeReply(answer); err == nil {
			err = c.Write(b, file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
