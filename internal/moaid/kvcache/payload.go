package kvcache

import "fmt"

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

// Payload describes the KV of a prompt on one rank. Every rank's has the same
// sections; see [Fingerprint.Own] for what of it travels.
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
	end := (tokens + f.Storage.BlockSize - 1) / f.Storage.BlockSize
	for i, g := range f.Groups {
		first := 0
		if g.Kind == GroupSliding && tokens > g.Window {
			first = (tokens - g.Window) / f.Storage.BlockSize
		}
		s := Section{
			Group:      i,
			FirstBlock: first,
			Blocks:     end - first,
			Offset:     p.Bytes,
			BlockBytes: f.PageBytes(i) * int64(len(g.Layers)),
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
// first fromToken tokens in its own cache. Whole blocks of groups that keep all tokens below
// fromToken are left out; sliding sections are always sent, since what a
// receiver's sliding layers keep depends on what it ran before.
func (f *Fingerprint) Needed(p Payload, fromToken int) []Range {
	var out []Range
	for _, s := range p.Sections {
		skip := 0
		if f.Groups[s.Group].Kind != GroupSliding && fromToken > 0 {
			skip = min(fromToken/f.Storage.BlockSize, s.Blocks)
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

// Own gives the ranges of a payload that only this rank has: all but the sections
// of groups of which a lower rank has the same heads. Over all ranks they are
// each head once, and they are what travels.
func (f *Fingerprint) Own(p Payload, rank int) []Range {
	var out []Range
	for _, s := range p.Sections {
		if f.Primary(s.Group, rank) != rank {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Offset+out[n-1].Length == s.Offset {
			out[n-1].Length += s.Bytes()
			continue
		}
		out = append(out, Range{Offset: s.Offset, Length: s.Bytes()})
	}
	return out
}

// WireBytes is what crosses the network for a prompt, over all ranks, when the
// receiver holds the first fromToken tokens itself.
func (f *Fingerprint) WireBytes(p Payload, fromToken int) int64 {
	var n int64
	for rank := range f.Ranks.Tensor {
		for _, own := range f.Own(p, rank) {
			for _, need := range f.Needed(p, fromToken) {
				n += max(0, min(own.Offset+own.Length, need.Offset+need.Length)-max(own.Offset, need.Offset))
			}
		}
	}
	return n
}
