package arena

import "sync"

// Extent is a span of arena bytes.
type Extent struct {
	Offset int64
	Length int64
}

// Usage counts the pages of a pool by state.
type Usage struct{ Free, Held, Quarantined, Total int }

// Pool leases the pages of one arena. It is safe for concurrent use.
type Pool struct {
	mu     sync.Mutex
	pages  *Pages
	held   int
	quar   int
	freed  func() // called without the lock when pages became free
	closed func() // called once when everything is free after Close
}

// NewPool makes a pool of n pages. freed, if not nil, is called whenever pages
// became free, on the goroutine that freed them.
func NewPool(n int, freed func()) *Pool { return &Pool{pages: NewPages(n), freed: freed} }

// Usage is the present state.
func (p *Pool) Usage() Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Usage{Free: p.pages.Free(), Held: p.held, Quarantined: p.quar, Total: p.pages.Total()}
}

// Lease takes pages for n bytes. It fails when there are too few, or after Close.
func (p *Pool) Lease(n int64) (*Lease, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil || n < 0 || n > int64(p.pages.Total())*PageSize {
		return nil, false
	}
	count := int((n + PageSize - 1) / PageSize)
	spans, ok := p.pages.Alloc(count)
	if !ok {
		return nil, false
	}
	p.held += count
	l := &Lease{pool: p, spans: spans, count: count}
	for _, s := range spans {
		e := Extent{int64(s.First) * PageSize, min(n, int64(s.Count)*PageSize)}
		n -= e.Length
		l.extents = append(l.extents, e)
	}
	return l, true
}

// Close refuses further leases and calls done once, when every page is free.
func (p *Pool) Close(done func()) {
	p.mu.Lock()
	if p.closed != nil {
		p.mu.Unlock()
		return
	}
	p.closed = done
	empty := p.pages.Free() == p.pages.Total()
	p.mu.Unlock()
	if empty {
		done()
	}
}

// Lease is pages that belong to one transfer.
type Lease struct {
	pool     *Pool
	spans    []Span
	count    int
	extents  []Extent
	refs     int
	released bool
}

// Extents are the leased bytes, in order.
func (l *Lease) Extents() []Extent { return l.extents }

// Hold keeps the pages until Drop. It fails once the lease was released.
func (l *Lease) Hold() bool {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if l.released {
		return false
	}
	l.refs++
	return true
}

// Drop ends a Hold.
func (l *Lease) Drop() { l.settle(false, func() { l.refs-- }) }

// Release gives the pages back: at once if nothing holds them, else from
// quarantine when the last Drop comes. Repeating it does nothing.
func (l *Lease) Release() { l.settle(false, l.release) }

// Undo gives back pages that nobody has used yet, and does not call freed: who
// could not get all that it needs, and tries again when told that pages became
// free, must not be told so by what it gave back itself.
func (l *Lease) Undo() { l.settle(true, l.release) }

// release moves the pages to quarantine. The caller holds the pool's lock.
func (l *Lease) release() {
	if !l.released {
		l.released = true
		l.pool.held -= l.count
		l.pool.quar += l.count
	}
}

func (l *Lease) settle(quiet bool, change func()) {
	p := l.pool
	p.mu.Lock()
	change()
	free := l.released && l.refs == 0 && l.count > 0
	var done func()
	if free {
		p.pages.Return(l.spans)
		p.quar -= l.count
		l.spans, l.count = nil, 0
		if p.closed != nil && p.pages.Free() == p.pages.Total() {
			done = p.closed
		}
	}
	p.mu.Unlock()
	if free && !quiet && p.freed != nil {
		p.freed()
	}
	if done != nil {
		done()
	}
}
