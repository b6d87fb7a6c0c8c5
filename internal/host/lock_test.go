package host_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/host"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh/sshtest"
)

func TestLock(t *testing.T) {
	beds(t, host.Options{LockWait: 30 * time.Millisecond, LockPoll: 5 * time.Millisecond}, func(t *testing.T, b *bed) {
		ctx := t.Context()
		l, err := b.h.Lock(ctx, "fleet prod, moai_node.a")
		if err != nil {
			t.Fatal(err)
		}
		first := l.Fence
		other := b.again()
		_, err = other.Lock(ctx, "fleet prod, moai_node.b")
		var locked *host.LockedError
		if !errors.Is(err, host.ErrLocked) || !errors.As(err, &locked) || locked.Owner != "fleet prod, moai_node.a" || locked.Age > time.Minute {
			t.Fatalf("second lock: %v", err)
		}
		if _, err := b.h.PutFile(ctx, b.file("a", "x", 0)); err != nil {
			t.Fatal(err)
		}
		if err := l.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if err := l.Release(ctx); err != nil {
			t.Errorf("second release: %v", err)
		}
		l, err = other.Lock(ctx, "b")
		if err != nil || l.Fence <= first || l.TakenFrom != "" {
			t.Fatalf("%+v %v, want a fence above %d", l, err, first)
		}
		if err := l.Release(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestLockIsTakenOver: a silent holder loses the lock, and the host then refuses its writes.
func TestLockIsTakenOver(t *testing.T) {
	beds(t, host.Options{LockWait: 30 * time.Millisecond, LockPoll: 5 * time.Millisecond}, func(t *testing.T, b *bed) {
		ctx := t.Context()
		old, err := b.h.Lock(ctx, "the dead")
		if err != nil {
			t.Fatal(err)
		}
		b.age(50 * time.Second)
		other := b.again()
		if _, err := other.Lock(ctx, "b"); !errors.Is(err, host.ErrLocked) {
			t.Fatalf("taken over too early: %v", err)
		}
		b.age(2 * time.Minute)
		l, err := other.Lock(ctx, "b")
		if err != nil || l.TakenFrom != "the dead" || l.Fence <= old.Fence {
			t.Fatalf("%+v %v", l, err)
		}
		for name, write := range map[string]func() error{
			"put":    func() error { _, err := b.h.PutFile(ctx, b.file("a", "x", 0)); return err },
			"mkdir":  func() error { return b.h.MakeDir(ctx, b.dir+"/x", 0o755, b.owner, b.group) },
			"reload": func() error { return b.h.DaemonReload(ctx) },
		} {
			if err := write(); !errors.Is(err, host.ErrLockLost) {
				t.Errorf("%s of the old holder: %v", name, err)
			}
		}
		if _, err := other.PutFile(ctx, b.file("a", "y", 0)); err != nil {
			t.Errorf("write of the new holder: %v", err)
		}
		if err := old.Release(ctx); !errors.Is(err, host.ErrLockLost) {
			t.Errorf("release of the old holder: %v", err)
		}
		if err := l.Release(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestLateAnswersLeaveNothing: a beat or a release that reaches the host after the lock is gone leaves no guard behind.
func TestLateAnswersLeaveNothing(t *testing.T) {
	if _, err := exec.LookPath("flock"); err != nil {
		if os.Getenv("MOAI_REQUIRE") != "" {
			t.Fatal("this machine has no flock")
		}
		t.Skip("this machine has no flock")
	}
	var text string
	for _, f := range []string{"prelude.sh", "lock.sh"} {
		b, err := os.ReadFile(filepath.Join("scripts", f))
		if err != nil {
			t.Fatal(err)
		}
		text += string(b)
	}
	dir := t.TempDir()
	lock := filepath.Join(dir, "lock")
	for _, verb := range []string{"beat", "release"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", text, "moai", "late", lock, verb, filepath.Join(dir, "fence"), "", "60").CombinedOutput()
		if err != nil || string(out) != "lost\n" {
			t.Fatalf("%s: %v %s", verb, err, out)
		}
		if left, err := filepath.Glob(lock + "*"); err != nil || len(left) != 0 {
			t.Errorf("%s left %v", verb, left)
		}
	}
}

func TestLockBeats(t *testing.T) {
	m := sshtest.NewMachine(t)
	s := m.Serve()
	h := host.New(connect(t, s), host.Options{LockTTL: time.Second, LockPoll: time.Millisecond})
	lost := make(chan error, 1)
	err := h.WithLock(t.Context(), "a", func(ctx context.Context, l *host.Lock) error {
		m.SetLock("thief", 0)
		select {
		case <-ctx.Done():
			lost <- context.Cause(ctx)
		case <-time.After(20 * time.Second):
			lost <- errors.New("the loss was not noticed")
		}
		return ctx.Err()
	})
	if cause := <-lost; !errors.Is(cause, host.ErrLockLost) || !errors.Is(err, context.Canceled) {
		t.Errorf("cause %v, error %v", cause, err)
	}
	if m.LockOwner() != "thief" {
		t.Errorf("the thief's lock was removed; owner is %q", m.LockOwner())
	}
}

func TestLockIsReleasedWhenCancelled(t *testing.T) {
	m := sshtest.NewMachine(t)
	h := host.New(connect(t, m.Serve()), host.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	err := h.WithLock(ctx, "a", func(ctx context.Context, _ *host.Lock) error {
		if m.LockOwner() != "a" {
			t.Errorf("owner is %q", m.LockOwner())
		}
		cancel()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || m.LockOwner() != "" {
		t.Errorf("%v, owner %q", err, m.LockOwner())
	}
}

// TestLockInProcess: resources of one run take turns.
func TestLockInProcess(t *testing.T) {
	m := sshtest.NewMachine(t)
	h := host.New(connect(t, m.Serve()), host.Options{LockWait: 20 * time.Millisecond})
	l, err := h.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Lock(t.Context(), "b"); !errors.Is(err, host.ErrLocked) || !strings.Contains(err.Error(), "another resource of this run") {
		t.Errorf("got %v", err)
	}
	done := make(chan error, 1)
	go func() {
		h2 := host.New(h.Conn(), host.Options{LockPoll: time.Millisecond})
		done <- h2.WithLock(context.Background(), "c", func(context.Context, *host.Lock) error { return nil })
	}()
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestLockLeavesNothing: many contenders on the real script get the lock one after another, with rising fences, and in the
// end only the fence file is there.
func TestLockLeavesNothing(t *testing.T) {
	beds(t, host.Options{LockPoll: time.Millisecond, LockWait: time.Minute}, func(t *testing.T, b *bed) {
		var mu sync.Mutex
		var fences []int64
		holders := 0
		var wg sync.WaitGroup
		for i := range 6 {
			h := b.again()
			wg.Go(func() {
				err := h.WithLock(context.Background(), "contender "+strconv.Itoa(i), func(context.Context, *host.Lock) error { return nil })
				if err != nil {
					t.Error(err)
					return
				}
				l, err := h.Lock(context.Background(), "contender "+strconv.Itoa(i))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				holders++
				if holders != 1 {
					t.Errorf("%d holders at once", holders)
				}
				fences = append(fences, l.Fence)
				holders--
				mu.Unlock()
				if err := l.Release(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if !slices.IsSorted(fences) || len(slices.Compact(slices.Clone(fences))) != 6 {
			t.Errorf("fences in the order of holding: %v", fences)
		}
		if b.name != "shell" {
			return
		}
		left, err := filepath.Glob(filepath.Join(filepath.Dir(b.dir), "lock*"))
		if err != nil || len(left) != 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	})
}
