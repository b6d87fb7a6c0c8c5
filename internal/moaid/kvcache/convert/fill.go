package convert

import (
	"fmt"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// Fill writes the bytes [offset, offset+len(out)) of a destination rank's payload
// for a prompt of tokens tokens. Any range of bytes may be asked for; an element that
// is cut by the range's edge is counted by whoever asks for its first byte. Of the
// source it reads only blocks that [Converter.Available] wants for the blocks asked
// for. An error leaves out undefined.
func (c *Converter) Fill(out []byte, tokens, rank int, offset int64, src Source) (Count, error) {
	to, err := c.dst.PayloadFor(tokens)
	if err != nil {
		return Count{}, err
	}
	if rank < 0 || rank >= c.dst.Ranks.Tensor || offset < 0 || int64(len(out)) > to.Bytes-offset {
		return Count{}, fmt.Errorf("%d bytes from %d of rank %d are outside a payload of %d ranks of %d bytes", len(out), offset, rank, c.dst.Ranks.Tensor, to.Bytes)
	}
	if c.identity {
		return Count{}, src(rank, offset, out)
	}
	from, err := c.src.PayloadFor(tokens)
	if err != nil {
		return Count{}, err
	}
	clear(out)
	f := filler{Converter: c, from: from, rank: rank, read: src}
	end := offset + int64(len(out))
	for _, s := range to.Sections {
		size, layers := c.dst.PageBytes(s.Group), int64(len(c.groups[s.Group].layers))
		lo, hi := max(offset, s.Offset)-s.Offset, min(end, s.Offset+s.Bytes())-s.Offset
		for page := lo / size; page*size < hi; page++ {
			at := s.Offset + page*size - offset // of the page's first byte in out; negative if it is cut
			w := window{out: out[max(at, 0):min(at+size, int64(len(out)))], skip: int(max(-at, 0))}
			if err := f.page(w, s.Group, s.FirstBlock+int(page/layers), int(page%layers)); err != nil {
				return Count{}, err
			}
		}
	}
	return f.count, nil
}

// window is the part of a destination page that is asked for: out holds its bytes
// from skip on.
type window struct {
	out  []byte
	skip int
}

// filler is the state of one Fill.
type filler struct {
	*Converter
	from   kvcache.Payload
	rank   int
	read   Source
	count  Count
	buffer []byte // of the source
}

// page fills a page: what a layer of a group keeps of a block.
func (f *filler) page(w window, group, block, layer int) error {
	plan := &f.groups[group]
	o := plan.layers[layer]
	n, m := f.dst.Storage.BlockSize, f.src.Storage.BlockSize
	first := max(block*n, f.firstToken(o.group, f.from.Tokens))
	end := min((block+1)*n, f.from.Tokens)
	for first < end {
		next := min((first/m+1)*m, end)
		for _, q := range f.sourceRanks(o.group, group, f.rank) {
			if err := f.move(w, group, o, q, first, next); err != nil {
				return err
			}
		}
		first = next
	}
	return nil
}

// move brings tokens first to end-1, of one source block and one destination
// block, from a source rank.
func (f *filler) move(w window, group int, o origin, q, first, end int) error {
	plan := &f.groups[group]
	l := plan.from[o.group]
	block := first / f.src.Storage.BlockSize
	s := f.from.Sections[o.group]
	size := f.src.PageBytes(o.group)
	at := s.Offset + int64(block-s.FirstBlock)*s.BlockBytes + int64(o.index)*size
	if f.whole {
		return f.read(q, at+int64(w.skip), w.out)
	}
	b := box{
		srcHead: 0, dstHead: 0, heads: 0,
		srcToken: first % f.src.Storage.BlockSize, dstToken: first % f.dst.Storage.BlockSize, tokens: end - first,
	}
	has, wants := f.src.FirstHead(o.group, q), f.dst.FirstHead(group, f.rank)
	head := max(has, wants)
	b.srcHead, b.dstHead = head-has, head-wants
	b.heads = min(has+l.at.heads, wants+plan.to.heads) - head
	if from, to := plan.to.extent(b.dstHead, b.heads, b.dstToken, b.tokens); to <= w.skip || from >= w.skip+len(w.out) {
		return nil // of a page much larger than what is asked for
	}
	lo, hi := l.at.extent(b.srcHead, b.heads, b.srcToken, b.tokens)
	if cap(f.buffer) < hi-lo {
		f.buffer = make([]byte, size)
	}
	in := f.buffer[:hi-lo]
	if err := f.read(q, at+int64(lo), in); err != nil {
		return err
	}
	f.count = f.count.Add(f.rows(w, in, lo, l, &plan.to, b))
	return nil
}
