package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

// Lock is the host's one write lock, held. While it is held, every write of the Host carries its token and the host
// refuses it with [ErrLockLost] once another run has taken the lock over.
type Lock struct {
	Fence     int64  // grows with each holder for as long as the host is installed
	TakenFrom string // the silent holder it was taken over from, or ""

	host  *Host
	token string
	stop  context.CancelFunc
	lost  chan struct{}
	beats sync.WaitGroup
	once  sync.Once
	err   error
}

// LockedError says who holds the lock.
type LockedError struct {
	Host  string
	Owner string
	Age   time.Duration // since the holder's last sign of life
}

// Error implements error.
func (e *LockedError) Error() string {
	return fmt.Sprintf("%s is being changed by %s (last sign of life %s ago); wait until that run has ended, or, if it is gone, until its lock is taken over after a minute of silence",
		e.Host, e.Owner, e.Age)
}

// Is makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// Lock takes the host's lock for owner, a sentence that tells people who it is (fleet, resource, user, machine). It
// waits for another holder up to [Options].LockWait, then fails with a *[LockedError]. Callers of one Host wait for each
// other. Release it in all paths; [Host.WithLock] does.
func (h *Host) Lock(ctx context.Context, owner string) (*Lock, error) {
	wait, cancel := context.WithTimeout(ctx, h.opts.LockWait)
	defer cancel()
	select {
	case h.local <- struct{}{}:
	case <-wait.Done():
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return nil, &LockedError{Host: h.String(), Owner: "another resource of this run"}
	}
	l, err := h.acquire(ctx, wait, owner)
	if err != nil {
		<-h.local
		return nil, err
	}
	return l, nil
}

func (h *Host) acquire(ctx, wait context.Context, owner string) (*Lock, error) {
	owner = strings.Join(strings.Fields(owner), " ")
	if owner == "" {
		return nil, errors.New("lock: owner is empty")
	}
	token := rand.Text()
	for {
		held, l, err := h.tryLock(ctx, token, owner)
		if err != nil {
			return nil, err
		}
		if l != nil {
			h.setToken(token)
			h.beat(ctx, l)
			return l, nil
		}
		timer := time.NewTimer(h.opts.LockPoll)
		select {
		case <-timer.C:
		case <-wait.Done():
			timer.Stop()
			if err := ctx.Err(); err != nil {
				return nil, errors.Join(held, err)
			}
			return nil, held
		}
	}
}

// tryLock asks once: an error, the holder, or the lock. An interrupted question may have been answered "mine", so then
// the lock is given back.
func (h *Host) tryLock(ctx context.Context, token, owner string) (held error, l *Lock, err error) {
	res, err := h.callAs(ctx, token, "lock", "acquire", nil, h.lockArgs("acquire", owner)...)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, ssh.ErrDropped) {
			_ = h.release(ctx, token)
		}
		return nil, nil, err
	}
	a, ok := parseLock(word(res))
	switch {
	case !ok:
		return nil, nil, h.unexpected("lock", "acquire", res)
	case a.mine:
		return nil, &Lock{Fence: a.n, TakenFrom: a.owner, host: h, token: token, lost: make(chan struct{})}, nil
	default:
		return &LockedError{Host: h.String(), Owner: a.owner, Age: time.Duration(a.n) * time.Second}, nil, nil
	}
}

// lockAnswer is what the host says to acquire.
type lockAnswer struct {
	mine  bool
	n     int64  // the fence if mine, otherwise the seconds since the holder's last beat
	owner string // whom it was taken from, "" for nobody; otherwise the holder
}

// parseLock reads "mine FENCE [OWNER]" or "held AGE OWNER". An age below 0 comes from a clock that was set back and
// counts as 0; no age is too long for a [time.Duration].
func parseLock(s string) (lockAnswer, bool) {
	what, rest, _ := strings.Cut(s, " ")
	number, owner, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil:
	case what == "mine" && n > 0:
		return lockAnswer{mine: true, n: n, owner: owner}, true
	case what == "held":
		return lockAnswer{n: min(max(n, 0), int64(math.MaxInt64/time.Second)), owner: owner}, true
	}
	return lockAnswer{}, false
}

func (h *Host) lockArgs(verb, owner string) []string {
	return []string{verb, h.opts.FencePath, owner, strconv.Itoa(int(h.opts.LockTTL / time.Second))}
}

func (h *Host) setToken(t string) {
	h.mu.Lock()
	h.token = t
	h.mu.Unlock()
}

// beat keeps the lock alive. A beat that cannot be sent is not yet a loss: the host decides, by its own clock.
func (h *Host) beat(ctx context.Context, l *Lock) {
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.beats.Go(func() {
		tick := time.NewTicker(h.opts.LockTTL / 4)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			res, err := h.callAs(ctx, l.token, "lock", "beat", nil, h.lockArgs("beat", "")...)
			if err == nil && word(res) == "lost" {
				close(l.lost)
				return
			}
		}
	})
}

// Lost is closed when the host said that another run has taken the lock over.
func (l *Lock) Lost() <-chan struct{} { return l.lost }

// Release gives the lock back, also when ctx is already cancelled. It may be called more than once. A lock that was
// lost is [ErrLockLost].
func (l *Lock) Release(ctx context.Context) error {
	l.once.Do(func() {
		l.stop()
		l.beats.Wait()
		l.err = l.host.release(ctx, l.token)
		l.host.setToken("")
		<-l.host.local
	})
	return l.err
}

func (h *Host) release(ctx context.Context, token string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	res, err := h.callAs(ctx, token, "lock", "release", nil, h.lockArgs("release", "")...)
	if err == nil && word(res) == "lost" {
		return fmt.Errorf("%s: %w", h, ErrLockLost)
	}
	return h.done("lock", "release", res, err)
}

// WithLock runs fn while the host's lock is held; fn's context ends when the lock is lost. The lock is released in all
// paths. If releasing fails after fn succeeded, that is not an error: the lock ends by its silence.
func (h *Host) WithLock(ctx context.Context, owner string, fn func(ctx context.Context, l *Lock) error) error {
	l, err := h.Lock(ctx, owner)
	if err != nil {
		return err
	}
	defer func() { _ = l.Release(ctx) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-l.Lost():
			cancel(ErrLockLost)
		case <-stop:
		}
	}()
	return fn(ctx, l)
}
