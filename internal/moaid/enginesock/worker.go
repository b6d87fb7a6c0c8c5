package enginesock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// ErrReported says that this rank has reported the id before. The first report
// stands.
var ErrReported = errors.New("this rank has reported the load of this id")

// reportMemory is how many ids a worker remembers after their report was
// answered, so that a late second report is refused here.
const reportMemory = 4096

// WorkerClient is one rank's session. Its arena stays mapped when the daemon
// goes, and is given back to the next one.
type WorkerClient struct {
	s *session

	arenaMu sync.RWMutex // held for reading while bytes are copied, for writing while the arena changes hands
	arena   []byte
	name    string
	file    *os.File
	holder  string // instance of the daemon that has the arena

	mu       sync.Mutex
	reported map[string]bool // by id, what was reported; until the session's memory is full
	order    []string
	unsent   map[string]*report         // not answered yet
	stored   map[string][]kvcache.Range // not answered yet
}

// report is a Loaded that is to be delivered.
type report struct {
	Loaded
	answered func(error) // nil if nobody waits
}

func (r *report) tell(err error) {
	if r.answered != nil {
		r.answered(err)
	}
}

// NewWorker makes a client; Run opens its session.
func NewWorker(id Identity, log *slog.Logger) *WorkerClient {
	w := &WorkerClient{reported: map[string]bool{}, unsent: map[string]*report{}, stored: map[string][]kvcache.Range{}}
	w.s = newSession(id, hooks{open: w.open}, log)
	return w
}

// Run keeps the session until ctx ends, then unmaps the arena.
func (w *WorkerClient) Run(ctx context.Context) {
	w.s.run(ctx)
	w.arenaMu.Lock()
	defer w.arenaMu.Unlock()
	w.unmap()
}

// State is nil while the session is up and has an arena.
func (w *WorkerClient) State() error { return w.s.state() }

// Arena calls f with the arena's memory, which stays mapped and with the same
// daemon while f runs. instance is that of the daemon that leased the extents
// which f uses. The error is ErrDown if another daemon has the arena by now, or
// none has had it yet: the extents mean nothing then.
func (w *WorkerClient) Arena(instance string, f func(mem []byte) error) error {
	w.arenaMu.RLock()
	defer w.arenaMu.RUnlock()
	if w.arena == nil || w.holder != instance {
		return ErrDown
	}
	return f(w.arena)
}

// Stored tells the daemon which payload bytes of this rank's own lie in the
// arena. It does not wait. A rank that has nothing of its own need not call it.
func (w *WorkerClient) Stored(id string, ranges []kvcache.Range) {
	if len(ranges) == 0 {
		return
	}
	w.mu.Lock()
	w.stored[id] = append(w.stored[id], ranges...)
	w.mu.Unlock()
	w.sendStored(id, ranges)
}

// storedBatch is how many ranges surely fit a packet. After a time without a
// daemon there may be more.
const storedBatch = 1000

func (w *WorkerClient) sendStored(id string, all []kvcache.Range) {
	for ranges := range slices.Chunk(all, storedBatch) {
		w.sendBatch(id, ranges)
	}
}

func (w *WorkerClient) sendBatch(id string, ranges []kvcache.Range) {
	w.s.start(&Stored{ID: id, Ranges: ranges}, nil, func(_ *OK, _ *os.File, err error) {
		if errors.Is(err, ErrDown) {
			return // repeated when the session is back
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		rest := w.stored[id]
		if len(rest) <= len(ranges) || err != nil {
			delete(w.stored, id)
			return
		}
		w.stored[id] = rest[len(ranges):]
	})
}

// Loaded reports that this rank has loaded the id, or could not. The first
// report of an id is delivered exactly once, if need be over several sessions; a
// later one gives ErrReported and sends nothing.
func (w *WorkerClient) Loaded(id string, ok bool) error { return w.report(id, ok, nil) }

// Report is Loaded that waits for the daemon's answer. Only after nil was every
// byte that this rank copied the transfer's: after any error the pages may have
// been another's meanwhile, and what was copied must not be used. The error is
// the daemon's *Error, ErrDown if another daemon has answered hello since, or
// that of ctx.
func (w *WorkerClient) Report(ctx context.Context, id string, ok bool) error {
	answer := make(chan error, 1)
	if err := w.report(id, ok, func(err error) { answer <- err }); err != nil {
		return err
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *WorkerClient) report(id string, ok bool, answered func(error)) error {
	w.mu.Lock()
	if _, again := w.reported[id]; again {
		w.mu.Unlock()
		return fmt.Errorf("%s: %w", id, ErrReported)
	}
	w.reported[id] = ok
	w.order = append(w.order, id)
	if len(w.order) > reportMemory {
		delete(w.reported, w.order[0])
		w.order = w.order[1:]
	}
	w.unsent[id] = &report{Loaded{ID: id, OK: ok}, answered}
	w.mu.Unlock()
	w.sendLoaded(id, ok)
	return nil
}

func (w *WorkerClient) sendLoaded(id string, ok bool) {
	w.s.start(&Loaded{ID: id, OK: ok}, nil, func(_ *OK, _ *os.File, err error) {
		if errors.Is(err, ErrDown) {
			return
		}
		// A refusal is final too: unknown_id means that the daemon has given the
		// pages to others, duplicate that the answer to an earlier try was lost.
		w.mu.Lock()
		r := w.unsent[id]
		delete(w.unsent, id)
		w.mu.Unlock()
		if r == nil {
			return
		}
		if errors.Is(err, &Error{Code: CodeDuplicate}) {
			err = nil
		}
		r.tell(err)
	})
}

func (w *WorkerClient) open(ctx context.Context, ok *OK, restarted bool) error {
	w.arenaMu.Lock()
	defer w.arenaMu.Unlock()
	if err := w.openArena(ctx); err != nil {
		return err
	}
	w.holder = ok.Instance
	w.mu.Lock()
	var lost []*report
	if restarted { // the daemon has forgotten these
		lost = slices.Collect(maps.Values(w.unsent))
		clear(w.unsent)
		clear(w.stored)
	}
	loaded := make([]Loaded, 0, len(w.unsent))
	for _, l := range w.unsent {
		loaded = append(loaded, l.Loaded)
	}
	stored := make(map[string][]kvcache.Range, len(w.stored))
	for id, r := range w.stored {
		stored[id] = append([]kvcache.Range(nil), r...)
	}
	w.mu.Unlock()
	for _, r := range lost {
		r.tell(ErrDown)
	}
	for id, r := range stored {
		w.sendStored(id, r)
	}
	for _, l := range loaded {
		w.sendLoaded(l.ID, l.OK)
	}
	return nil
}

func (w *WorkerClient) openArena(ctx context.Context) error {
	if w.file != nil {
		_, f, err := w.s.do(ctx, &Adopt{Arena: w.name, Bytes: int64(len(w.arena))}, w.file)
		closeFile(f)
		if err == nil {
			return nil
		}
		if !errors.Is(err, &Error{Code: CodeBadArena}) {
			return fmt.Errorf("adopt: %w", err)
		}
	}
	ok, f, err := w.s.do(ctx, &Arena{}, nil)
	if err != nil {
		return fmt.Errorf("arena: %w", err)
	}
	if f == nil {
		return errors.New("arena: the answer carries no descriptor")
	}
	mem, err := mapArena(f, ok.Bytes)
	if err != nil {
		closeFile(f)
		return err
	}
	w.unmap()
	w.arena, w.file, w.name = mem, f, ok.Arena
	return nil
}

func mapArena(f *os.File, size int64) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("arena: %w", err)
	}
	if size < 1 || st.Size() != size {
		return nil, fmt.Errorf("arena: descriptor of %d bytes, announced as %d", st.Size(), size)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map arena of %d bytes: %w", size, err)
	}
	return mem, nil
}

func (w *WorkerClient) unmap() {
	if w.arena != nil {
		_ = unix.Munmap(w.arena)
	}
	closeFile(w.file)
	w.arena, w.file, w.name = nil, nil, ""
}
