package kvcache

// RankHeads is the number of KV heads of a group that each rank has.
func (f *Fingerprint) RankHeads(group int) int {
	return max(1, f.Groups[group].Heads/f.Ranks.Tensor)
}

// FirstHead is the first of the heads that a rank has.
func (f *Fingerprint) FirstHead(group, rank int) int {
	return rank * f.Groups[group].Heads / f.Ranks.Tensor
}

// Primary is the lowest rank that has the same heads of a group as rank: the one
// whose copy travels.
func (f *Fingerprint) Primary(group, rank int) int {
	h, n := f.Groups[group].Heads, f.Ranks.Tensor
	if h >= n {
		return rank
	}
	return rank - rank%(n/h)
}

// PageBytes is the size of one page: what one layer of a group keeps on one rank
// for one block, K and V together, with its padding.
func (f *Fingerprint) PageBytes(group int) int64 {
	g := &f.Groups[group]
	return int64(f.Storage.BlockSize)*int64(f.RankHeads(group))*int64(g.KeyDim+g.ValueDim)*int64(f.Storage.DType.Size()) + int64(f.Storage.Padding)
}

// Part is a half of the content of a head and token.
type Part int

// Parts.
const (
	Key Part = iota
	Value
)

// At is the position in bytes of an element in a page of a group: head counts
// from the rank's first, token from the block's first. The packing must be
// [Packing.Known].
func (f *Fingerprint) At(group, head, token int, part Part, dim int) int64 {
	g, s := &f.Groups[group], &f.Storage
	n, heads := s.KernelBlock, f.RankHeads(group)
	kernelPage := n * heads * (g.KeyDim + g.ValueDim)
	at := token / n * kernelPage
	return int64(at+s.within(g, heads, head, token%n, part, dim)) * int64(s.DType.Size())
}

// within is the index of an element in a kernel page.
func (s *Storage) within(g *Group, heads, head, token int, part Part, dim int) int {
	n, k, v := s.KernelBlock, g.KeyDim, g.ValueDim
	slot := head*n + token
	if s.Order.TokenMajor() {
		slot = token*heads + head
	}
	if s.Packing == PackingPacked {
		return slot*(k+v) + int(part)*k + dim
	}
	x := 16 / s.DType.Size()
	switch {
	case s.Packing == PackingApart && part == Key:
		return slot*k + dim
	case s.Packing == PackingApart:
		return heads*n*k + slot*v + dim
	case (s.Packing == PackingX || s.Packing == PackingShuffled) && part == Key:
		return head*n*k + (dim/x*n+token)*x + dim%x
	case s.Packing == PackingX:
		return heads*n*k + head*n*v + dim*n + token
	case s.Packing == PackingShuffled:
		return heads*n*k + head*n*v + (token/x*v+dim)*x + token%x
	}
	at := head * n * (k + v) // the CPU kernels have a head's K and V side by side
	switch {
	case s.Packing == PackingCPUAMX && part == Key:
		return at + ((token/16*(k/2)+dim/2)*16+token%16)*2 + dim%2
	case s.Packing == PackingCPUAMX:
		return at + n*k + ((dim/16*(n/2)+token/2)*16+dim%16)*2 + token%2
	case part == Key:
		return at + dim*n + token
	}
	return at + n*k + token*v + dim
}

// ClearFrom zeroes the slots of a page's tokens from token on, and its padding, so
// that what an earlier prompt left there does not travel. Pages of an opaque
// packing are left as they are.
func (f *Fingerprint) ClearFrom(page []byte, group, token int) {
	clear(page[len(page)-f.Storage.Padding:])
	if !f.Storage.Packing.Known() {
		return
	}
	g, size := &f.Groups[group], f.Storage.DType.Size()
	for ; token < f.Storage.BlockSize; token++ {
		for head := range f.RankHeads(group) {
			for d := range g.KeyDim {
				clear(page[f.At(group, head, token, Key, d):][:size])
			}
			for d := range g.ValueDim {
				clear(page[f.At(group, head, token, Value, d):][:size])
			}
		}
	}
}
