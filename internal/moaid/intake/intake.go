// Package intake reads requests' bodies into memory, and bounds what all of them
// take together: a limit a body alone lets as many bodies as there are
// connections take all memory of the host.
package intake

import (
	"errors"
	"io"
	"sync"
)

// ErrFull says that the bodies in memory take all that is allowed.
var ErrFull = errors.New("the requests in memory take all the memory that is set aside for them")

// first is what a body gets before it is known to be longer, in bytes: who only
// announces much gets little.
const first = 64 << 10

// Budget is the memory for bodies. It is safe for concurrent use.
type Budget struct {
	mu   sync.Mutex
	free int64
}

// NewBudget gives a budget of so many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{free: bytes} }

// Free is how many bytes are left.
func (b *Budget) Free() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.free
}

func (b *Budget) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.free {
		return false
	}
	b.free -= n
	return true
}

func (b *Budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
}

// Read reads r to its end. announced is the length that the sender gave, -1 if
// it gave none. The memory counts until release is called, once, when the body
// is not used any more. The error is ErrFull, or r's; then nothing is counted and
// release is nil.
func (b *Budget) Read(r io.Reader, announced int64) (body []byte, release func(), err error) {
	size := int64(first)
	if announced >= 0 {
		size = min(size, announced+1) // the end is seen without growing
	}
	if !b.take(size) {
		return nil, nil, ErrFull
	}
	buf := make([]byte, 0, size)
	for {
		if len(buf) == cap(buf) {
			next := 2 * size
			if announced >= int64(len(buf)) {
				next = min(next, announced+1)
			}
			if !b.take(next) { // both exist while one is copied
				b.give(size)
				return nil, nil, ErrFull
			}
			buf = append(make([]byte, 0, next), buf...)
			b.give(size)
			size = next
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case errors.Is(err, io.EOF):
			return buf, func() { b.give(size) }, nil
		case err != nil:
			b.give(size)
			return nil, nil, err
		}
	}
}
