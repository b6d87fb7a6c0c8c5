package kvcache

import "fmt"

// PageBytes is the size of one page: what one layer keeps on one rank for one
// block, K and V together.
func (f *Fingerprint) PageBytes() int64 {
	return int64(f.BlockSize) * int64(f.KVHeads/f.TensorSize) * int64(f.HeadDim) * 2 * int64(f.DType.Size())
}

// Section is the part of a payload that one group contributes: blocks
// FirstBlock to FirstBlock+Blocks-1, each block being the pages of the group's
// layers in ascending order. Offset and the sizes are bytes.
type Section struct {
	Group      int
	FirstBlock int
	Blocks     int
	Offset     int64
	BlockBytes int64 // all layers of one block
}

// Bytes is the size of the section.
func (s Section) Bytes() int64 { return int64(s.Blocks) * s.BlockBytes }

// Payload describes what one rank sends for a prompt.
type Payload struct {
	Tokens   int
	Sections []Section
	Bytes    int64
}

// PayloadFor gives the payload of a prompt of tokens tokens. A full group sends
// every block that holds a token, the last one as a whole page whose unused
// slots are zero. A sliding group sends the blocks that hold one of the last
// Window tokens before the position that the receiver computes itself: the
// receiver computes token tokens-1 again to get logits, and that position
// attends to tokens-Window … tokens-1.
func (f *Fingerprint) PayloadFor(tokens int) (Payload, error) {
	if tokens < 1 || tokens > MaxTokens {
		return Payload{}, fmt.Errorf("a prompt of %d tokens is outside 1 to %d", tokens, MaxTokens)
	}
	p := Payload{Tokens: tokens, Sections: make([]Section, 0, len(f.Groups))}
	end := (tokens + f.BlockSize - 1) / f.BlockSize
	for i, g := range f.Groups {
		first := 0
		if g.Kind == GroupSliding && tokens > g.Window {
			first = (tokens - g.Window) / f.BlockSize
		}
		s := Section{
			Group:      i,
			FirstBlock: first,
			Blocks:     end - first,
			Offset:     p.Bytes,
			BlockBytes: f.PageBytes() * int64(len(g.Layers)),
		}
		p.Sections = append(p.Sections, s)
		p.Bytes += s.Bytes()
	}
	return p, nil
}

// Range is a span of payload bytes, [Offset, Offset+Length).
type Range struct {
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
}

// Needed gives the ranges that a receiver still needs when it already holds the
// first fromToken tokens in its own cache. Whole blocks of full groups below
// fromToken are left out; sliding sections are always sent, since what a
// receiver's sliding layers keep depends on what it ran before.
func (f *Fingerprint) Needed(p Payload, fromToken int) []Range {
	var out []Range
	for _, s := range p.Sections {
		skip := 0
		if f.Groups[s.Group].Kind == GroupFull && fromToken > 0 {
			skip = min(fromToken/f.BlockSize, s.Blocks)
		}
		r := Range{Offset: s.Offset + int64(skip)*s.BlockBytes, Length: int64(s.Blocks-skip) * s.BlockBytes}
		if r.Length == 0 {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Offset+out[n-1].Length == r.Offset {
			out[n-1].Length += r.Length
			continue
		}
		out = append(out, r)
	}
	return out
}

// TotalBytes is the sum of the ranges' lengths.
func TotalBytes(rs []Range) int64 {
	var n int64
	for _, r := range rs {
		n += r.Length
	}
	return n
}
