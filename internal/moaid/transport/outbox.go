package transport

import (
	"errors"
	"sync"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

const (
	// maxQueued bounds the bytes that wait for the control connection: some
	// thousands of frames. A peer that reads that much too slowly is lost.
	maxQueued = 4 << 20
	// keepBuffer is the largest buffer that is kept for the next write.
	keepBuffer = 256 << 10
)

var errOverflow = errors.New("the queue of the control connection is full: the peer does not read")

// outbox collects encoded frames for the one writer: one buffer, one write.
type outbox struct {
	wake chan struct{} // holds one token while there is something

	mu     sync.Mutex
	buf    []byte
	frames uint64
	spare  []byte
}

func (o *outbox) init() { o.wake = make(chan struct{}, 1) }

// push encodes m at the end of the queue.
func (o *outbox) push(m wire.Message) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.buf)
	out, err := wire.Encode(o.buf, m)
	if err != nil {
		return err
	}
	if len(out) > maxQueued {
		o.buf = out[:n]
		return errOverflow
	}
	o.buf = out
	o.frames++
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return nil
}

// take gives everything that waits. The caller hands the buffer back.
func (o *outbox) take() (b []byte, frames uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, frames = o.buf, o.frames
	o.buf, o.spare, o.frames = o.spare, nil, 0
	return b, frames
}

func (o *outbox) giveBack(b []byte) {
	if cap(b) > keepBuffer {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spare = b[:0]
}
