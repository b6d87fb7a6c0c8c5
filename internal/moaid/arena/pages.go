package arena

import "slices"

// PageSize is the unit of allocation in bytes: small enough that a short
// prompt wastes little, large enough that a 32 GiB arena has half a million.
const PageSize = 64 << 10

// Span is a run of pages.
type Span struct{ First, Count int }

// Pages allocates pages first-fit. It is pure and not safe for concurrent use.
type Pages struct {
	total int
	free  []Span // ascending, not touching
	nfree int
}

// NewPages gives an allocator of n free pages.
func NewPages(n int) *Pages {
	p := &Pages{total: n, nfree: n}
	if n > 0 {
		p.free = []Span{{0, n}}
	}
	return p
}

// Total is the number of pages.
func (p *Pages) Total() int { return p.total }

// Free is the number of free pages.
func (p *Pages) Free() int { return p.nfree }

// Alloc takes n pages, in as many spans as fragmentation needs: one if some hole
// is large enough, the first holes otherwise. It takes none if there are too few.
func (p *Pages) Alloc(n int) ([]Span, bool) {
	if n < 0 || n > p.nfree {
		return nil, false
	}
	if n == 0 {
		return nil, true
	}
	if i := slices.IndexFunc(p.free, func(s Span) bool { return s.Count >= n }); i >= 0 {
		return []Span{p.take(i, n)}, true
	}
	var out []Span
	for n > 0 {
		s := p.take(0, min(n, p.free[0].Count))
		n -= s.Count
		out = append(out, s)
	}
	return out, true
}

func (p *Pages) take(i, n int) Span {
	s := Span{p.free[i].First, n}
	p.free[i].First += n
	p.free[i].Count -= n
	if p.free[i].Count == 0 {
		p.free = slices.Delete(p.free, i, i+1)
	}
	p.nfree -= n
	return s
}

// Return makes spans free again. They must have come from Alloc, once.
func (p *Pages) Return(spans []Span) {
	for _, s := range spans {
		i, _ := slices.BinarySearchFunc(p.free, s, func(a, b Span) int { return a.First - b.First })
		p.free = slices.Insert(p.free, i, s)
		p.nfree += s.Count
		if i+1 < len(p.free) && s.First+s.Count == p.free[i+1].First {
			p.free[i].Count += p.free[i+1].Count
			p.free = slices.Delete(p.free, i+1, i+2)
		}
		if i > 0 && p.free[i-1].First+p.free[i-1].Count == p.free[i].First {
			p.free[i-1].Count += p.free[i].Count
			p.free = slices.Delete(p.free, i, i+1)
		}
	}
}
