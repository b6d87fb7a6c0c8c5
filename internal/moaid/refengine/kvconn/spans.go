package kvconn

import (
	"fmt"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// span says where payload bytes lie in the arena.
type span struct{ payload, arena, length int64 }

// spans lays payload ranges over extents: both are lists whose concatenations
// are the same bytes. size is that of the arena.
func spans(ranges []kvcache.Range, extents []enginesock.Extent, size int64) ([]span, error) {
	var out []span
	e, used := 0, int64(0)
	for _, r := range ranges {
		for r.Length > 0 {
			if e == len(extents) {
				return nil, fmt.Errorf("the extents are %d bytes shorter than the ranges", r.Length)
			}
			x := extents[e]
			if x.Offset < 0 || x.Length < 1 || x.Offset > size-x.Length {
				return nil, fmt.Errorf("extent at %d of %d bytes is not within the arena of %d", x.Offset, x.Length, size)
			}
			n := min(r.Length, x.Length-used)
			out = append(out, span{payload: r.Offset, arena: x.Offset + used, length: n})
			r.Offset, r.Length, used = r.Offset+n, r.Length-n, used+n
			if used == x.Length {
				e, used = e+1, 0
			}
		}
	}
	return out, nil
}

// page is one layer's page of one block in a payload.
type page struct {
	offset      int64 // in the payload
	size        int64
	group, slot int // slot is the layer's index in its group
	block       int // number in the prompt
}

// pages lists a payload's pages in order.
func pages(fp *kvcache.Fingerprint, pl kvcache.Payload) []page {
	var out []page
	for _, s := range pl.Sections {
		size := fp.PageBytes(s.Group)
		for b := range s.Blocks {
			for slot := range fp.Groups[s.Group].Layers {
				out = append(out, page{offset: s.Offset + int64(b)*s.BlockBytes + int64(slot)*size, size: size, group: s.Group, slot: slot, block: s.FirstBlock + b})
			}
		}
	}
	return out
}

// covers reports whether the spans hold all of payload bytes [offset, offset+n).
func covers(sp []span, offset, n int64) bool {
	var got int64
	for _, s := range sp {
		got += max(0, min(offset+n, s.payload+s.length)-max(offset, s.payload))
	}
	return got == n
}

// each calls f for the parts of payload bytes [offset, offset+len(mem)) that the
// spans cover, with the memory and the arena offset of each part, and returns
// how many bytes those were.
func each(sp []span, offset int64, mem []byte, f func(part []byte, arena int64)) int64 {
	var n int64
	end := offset + int64(len(mem))
	for _, s := range sp {
		from, to := max(offset, s.payload), min(end, s.payload+s.length)
		if from < to {
			f(mem[from-offset:to-offset], s.arena+from-s.payload)
			n += to - from
		}
	}
	return n
}
