package kvd

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
)

// errStopping says that the daemon is about to end.
var errStopping = errors.New("the KV daemon is stopping")

// tickInterval is how late a deadline may be noticed.
const tickInterval = 50 * time.Millisecond

// owner runs closures one after another.
type owner struct {
	inbox chan func()
	done  chan struct{} // closed when nothing is run any more
	start time.Time
}

func newOwner() *owner {
	return &owner{inbox: make(chan func(), 1024), done: make(chan struct{}), start: time.Now()}
}

// now is the monotonic instant that the machines use; never 0.
func (o *owner) now() transfer.Instant { return transfer.Instant(time.Since(o.start)) + 1 }

// run runs what is posted, and tick at intervals, and settle after each, until
// ctx ends.
func (o *owner) run(ctx context.Context, tick, settle func()) {
	defer close(o.done)
	t := time.NewTicker(tickInterval)
	defer t.Stop()
	for {
		select {
		case f := <-o.inbox:
			f()
			settle()
		case <-t.C:
			tick()
			settle()
		case <-ctx.Done():
			return
		}
	}
}

// post asks for f to be run. It waits while the inbox is full and gives false if
// the owner has ended. The owner itself must not call it.
func (o *owner) post(f func()) bool {
	select {
	case o.inbox <- f:
		return true
	case <-o.done:
		return false
	}
}

// call runs f on the owner and waits for it. With an error f was not run, and
// will not be: what it would have begun, nobody would end.
func (o *owner) call(ctx context.Context, f func()) error {
	ran := make(chan struct{})
	var taken atomic.Bool // by the owner, which runs f, or by us, who gave up
	if !o.post(func() {
		if taken.CompareAndSwap(false, true) {
			f()
			close(ran)
		}
	}) {
		return errStopping
	}
	err := errStopping
	select {
	case <-ran:
		return nil
	case <-o.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if taken.CompareAndSwap(false, true) {
		return err
	}
	<-ran
	return nil
}
