package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An exchange is memory that the ranks of a replica share, and a bell for each of
// them: an eventfd on which the rank sleeps until all have come. The memory is a
// counter of arrivals and two buffers that take turns. A rank that writes to a
// buffer has met the others since they last read it: between two uses of it lies
// a meeting over the other one.
const (
	exchangeHead   = 64      // bytes; the counter has a cache line of its own
	exchangeBuffer = 1 << 20 // bytes of each of the two buffers; longer parts are joined piece by piece
	exchangeBytes  = exchangeHead + 2*exchangeBuffer
)

// newExchange makes the memory and the bells, as descriptors for the ranks'
// processes: the memory first, then the bells in rank order.
func newExchange(ranks int) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			closeAll(files)
		}
	}()
	fd, err := unix.MemfdCreate("moai-ranks", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory for the ranks: %w", err)
	}
	files = append(files, os.NewFile(uintptr(fd), "ranks"))
	if err := files[0].Truncate(exchangeBytes); err != nil {
		return files, fmt.Errorf("memory for the ranks: %w", err)
	}
	for rank := range ranks {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			return files, fmt.Errorf("eventfd for rank %d: %w", rank, err)
		}
		files = append(files, os.NewFile(uintptr(fd), "bell-"+strconv.Itoa(rank)))
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// exchange is one rank's side; it belongs to one goroutine.
type exchange struct {
	rank     int
	bells    []int // descriptors, by rank
	arrivals *atomic.Uint64
	buffers  [2][]float32
	meetings uint64
}

// joinExchange maps the memory. memory and bells are descriptors that stay open.
func joinExchange(memory int, bells []int, rank int) (*exchange, error) {
	mem, err := unix.Mmap(memory, 0, exchangeBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the memory of the ranks: %w", err)
	}
	// The mapping begins at a page, so that the counter and the numbers are aligned.
	x := &exchange{rank: rank, bells: bells, arrivals: (*atomic.Uint64)(unsafe.Pointer(&mem[0]))} //nolint:gosec // within mem, aligned
	for i := range x.buffers {
		at := unsafe.Pointer(&mem[exchangeHead+i*exchangeBuffer])     //nolint:gosec // within mem, aligned
		x.buffers[i] = unsafe.Slice((*float32)(at), exchangeBuffer/4) //nolint:gosec // ends where the next buffer, or mem, does
	}
	return x, nil
}

// AllGather sets whole to the parts of all ranks, in rank order.
func (x *exchange) AllGather(part, whole []float32) error {
	size := len(x.bells)
	if len(whole) != size*len(part) {
		return fmt.Errorf("%d parts of %d numbers do not make %d", size, len(part), len(whole))
	}
	piece := len(x.buffers[0]) / size
	for at := 0; at < len(part); at += piece {
		n := min(piece, len(part)-at)
		buf := x.buffers[x.meetings%2]
		copy(buf[x.rank*n:], part[at:at+n])
		if err := x.meet(); err != nil {
			return err
		}
		for r := range size {
			copy(whole[r*len(part)+at:][:n], buf[r*n:])
		}
	}
	return nil
}

// meet returns when all ranks have called it. Whoever comes last wakes the others.
// A rank hears its bell once a meeting, so rings never add up.
func (x *exchange) meet() error {
	x.meetings++
	var b [8]byte
	if x.arrivals.Add(1) != x.meetings*uint64(len(x.bells)) {
		for {
			_, err := unix.Read(x.bells[x.rank], b[:])
			if !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	}
	binary.NativeEndian.PutUint64(b[:], 1)
	for r, fd := range x.bells {
		if r == x.rank {
			continue
		}
		if _, err := unix.Write(fd, b[:]); err != nil {
			return fmt.Errorf("wake rank %d: %w", r, err)
		}
	}
	return nil
}
