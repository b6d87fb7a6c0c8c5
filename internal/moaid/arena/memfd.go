package arena

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	wantSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	// prefaultStep bounds one madvise call, so that a cancelled prefault of a
	// large arena ends soon.
	prefaultStep = 64 << 20
)

// ErrBad says that a descriptor is no arena: wrong kind, seals or size.
var ErrBad = errors.New("the descriptor is no arena")

// Arena is a mapped memfd.
type Arena struct {
	Name string
	*Pool
	file *os.File
	mem  []byte
}

// Create makes a sealed memfd of size bytes, rounded down to whole pages, and
// maps it. Its memory is not there yet: see Prefault.
func Create(name string, size int64, freed func()) (*Arena, error) {
	size -= size % PageSize
	if size < PageSize {
		return nil, fmt.Errorf("arena %s: staging memory for a rank must be at least %d bytes", name, PageSize)
	}
	fd, err := unix.MemfdCreate("moai-"+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("arena %s: memfd_create: %w", name, err)
	}
	if err := prepare(fd, size); err != nil {
		return nil, errors.Join(fmt.Errorf("arena %s: %w", name, err), unix.Close(fd))
	}
	return mapped(name, fd, size, freed)
}

func prepare(fd int, size int64) error {
	if err := unix.Ftruncate(fd, size); err != nil {
		return fmt.Errorf("set the size of the memfd to %d bytes: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, wantSeals); err != nil {
		return fmt.Errorf("seal the memfd: %w", err)
	}
	return nil
}

// Adopt takes an arena back from a client: a duplicate of file is mapped if its
// seals and size are right, else the error wraps ErrBad. file stays the caller's.
func Adopt(name string, file *os.File, size int64, freed func()) (*Arena, error) {
	if size < PageSize || size%PageSize != 0 {
		return nil, fmt.Errorf("arena %s: size %d is no multiple of %d: %w", name, size, PageSize, ErrBad)
	}
	rc, err := file.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("arena %s: %w", name, err)
	}
	fd, derr := -1, error(nil)
	if err := rc.Control(func(f uintptr) { fd, derr = unix.FcntlInt(f, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, fmt.Errorf("arena %s: %w", name, err)
	}
	if derr != nil {
		return nil, fmt.Errorf("arena %s: duplicate the descriptor: %w", name, derr)
	}
	if err := verify(fd, size); err != nil {
		return nil, errors.Join(fmt.Errorf("arena %s: %w", name, err), unix.Close(fd))
	}
	return mapped(name, fd, size, freed)
}

// Sealed reports whether file is a memfd with the seals of an arena. It asks the
// kernel only: whoever serves a file system behind a descriptor is not asked.
func Sealed(file *os.File) bool {
	if file == nil {
		return false
	}
	rc, err := file.SyscallConn()
	if err != nil {
		return false
	}
	seals := 0
	cerr := rc.Control(func(fd uintptr) { seals, err = unix.FcntlInt(fd, unix.F_GET_SEALS, 0) })
	return cerr == nil && err == nil && seals == wantSeals
}

// verify accepts exactly what Create makes. Only memfds and hugetlbfs files know
// seals: F_GET_SEALS fails on everything else.
func verify(fd int, size int64) error {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("it has no seals (%w): %w", err, ErrBad)
	}
	if seals != wantSeals {
		return fmt.Errorf("its seals are %#x, not %#x: %w", seals, wantSeals, ErrBad)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("fstat: %w", err)
	}
	if st.Size != size {
		return fmt.Errorf("it has %d bytes, not %d: %w", st.Size, size, ErrBad)
	}
	return nil
}

func mapped(name string, fd int, size int64, freed func()) (*Arena, error) {
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("arena %s: map %d bytes: %w", name, size, err), unix.Close(fd))
	}
	// KV is user data: it does not belong in a core dump.
	if err := unix.Madvise(mem, unix.MADV_DONTDUMP); err != nil {
		return nil, errors.Join(fmt.Errorf("arena %s: exclude from core dumps: %w", name, err), unix.Munmap(mem), unix.Close(fd))
	}
	return &Arena{Name: name, Pool: NewPool(int(size/PageSize), freed), file: os.NewFile(uintptr(fd), "memfd:moai-"+name), mem: mem}, nil
}

// Bytes is the size of the arena.
func (a *Arena) Bytes() int64 { return int64(len(a.mem)) }

// File is the memfd. It stays the arena's.
func (a *Arena) File() *os.File { return a.file }

// Prefault makes the kernel allocate the memory, in a system call: a page fault
// in Go code would hold up its scheduler.
func (a *Arena) Prefault(ctx context.Context) error {
	for off := 0; off < len(a.mem); off += prefaultStep {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("arena %s: prefault: %w", a.Name, err)
		}
		step := a.mem[off:min(off+prefaultStep, len(a.mem))]
		if err := unix.Madvise(step, unix.MADV_POPULATE_WRITE); err != nil {
			return fmt.Errorf("arena %s: reserve %d bytes of memory: %w; is the host, or the unit's MemoryMax, too small for staging?", a.Name, len(a.mem), err)
		}
	}
	return nil
}

// View gives the memory of bytes off to off+n of the concatenation of extents,
// whose lease the caller holds.
func (a *Arena) View(extents []Extent, off, n int64) [][]byte {
	var out [][]byte
	for _, e := range extents {
		if n <= 0 {
			break
		}
		if off >= e.Length {
			off -= e.Length
			continue
		}
		l := min(n, e.Length-off)
		out = append(out, a.mem[e.Offset+off:e.Offset+off+l:e.Offset+off+l])
		off, n = 0, n-l
	}
	return out
}

// Retire unmaps and closes the arena when its last page is free. No lease can be
// taken after it.
func (a *Arena) Retire() {
	a.Close(func() {
		// Nothing can be done about either failure, and no memory is lost by it:
		// the process is about to end or the engine is gone.
		_ = unix.Munmap(a.mem)
		_ = a.file.Close()
	})
}
