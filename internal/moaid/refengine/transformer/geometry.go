package transformer

import (
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// axes give the position in bytes of an element of K or of V, from its page's layer
// and block: the sum of what its head, its token and its dimension give. That it is a
// sum holds for every packing with known positions.
type axes struct {
	head, token, dim []int
	row              bool // the dimensions of a head and token lie side by side
}

// axesOf measures the positions of a page in a payload.
func axesOf(fp *kvcache.Fingerprint, part kvcache.Part) axes {
	g := &fp.Groups[0]
	n := g.KeyDim
	if part == kvcache.Value {
		n = g.ValueDim
	}
	a := axes{row: true}
	if n == 0 {
		return a
	}
	origin := int(fp.At(0, 0, 0, part, 0))
	for h := range fp.RankHeads(0) {
		a.head = append(a.head, int(fp.At(0, h, 0, part, 0))-origin)
	}
	for t := range fp.Storage.BlockSize {
		a.token = append(a.token, int(fp.At(0, 0, t, part, 0)))
	}
	for d := range n {
		a.dim = append(a.dim, int(fp.At(0, 0, 0, part, d))-origin)
		a.row = a.row && a.dim[d] == d*fp.Storage.DType.Size()
	}
	return a
}

// memory is where elements lie in the engine's own memory.
type memory struct {
	slot, block int // bytes from one to the next
	size        int // bytes of all
	part        [2]axes
	runs        []run // of a page; none where a page lies in one piece as in a payload
}

// run is bytes that lie side by side in memory and in a payload's page.
type run struct{ memory, page, length int }

// newMemory lays out pages of slots layers and blocks blocks in the order of the
// format. What lies in one piece, a page or a head's part of it, ends with the padding.
func newMemory(fp *kvcache.Fingerprint, slots, blocks int) memory {
	payload := [2]axes{axesOf(fp, kvcache.Key), axesOf(fp, kvcache.Value)}
	page := int(fp.PageBytes(0))
	if o := fp.Storage.Order; o != kvcache.OrderLHBNC && o != kvcache.OrderBHLNC {
		m := memory{slot: blocks * page, block: page, size: slots * blocks * page, part: payload}
		if o == kvcache.OrderBLHNC || o == kvcache.OrderBLNHC {
			m.slot, m.block = page, slots*page
		}
		return m
	}
	heads := fp.RankHeads(0)
	one := *fp
	one.Ranks.Tensor, one.Groups = 1, []kvcache.Group{fp.Groups[0]}
	one.Groups[0].Heads = 1
	piece := int(one.PageBytes(0))
	m := memory{slot: heads * blocks * piece, block: piece, size: slots * heads * blocks * piece, part: [2]axes{axesOf(&one, kvcache.Key), axesOf(&one, kvcache.Value)}}
	head := blocks * piece
	if fp.Storage.Order == kvcache.OrderBHLNC {
		m.slot, m.block, head = piece, heads*slots*piece, slots*piece
	}
	for p := range m.part {
		for h := 1; h < heads && len(m.part[p].head) > 0; h++ {
			m.part[p].head = append(m.part[p].head, h*head)
		}
		m.runs = append(m.runs, runsOf(&m.part[p], &payload[p], fp.Storage.DType.Size())...)
	}
	return m
}

// runsOf finds what lies side by side both in memory and in a payload's page.
func runsOf(memory, page *axes, size int) []run {
	var all []run
	for h, head := range memory.head {
		for t, token := range memory.token {
			for d, dim := range memory.dim {
				all = append(all, run{memory: head + token + dim, page: page.head[h] + page.token[t] + page.dim[d], length: size})
			}
		}
	}
	slices.SortFunc(all, func(a, b run) int { return a.memory - b.memory })
	out := all[:0]
	for _, r := range all {
		if n := len(out); n > 0 && out[n-1].memory+out[n-1].length == r.memory && out[n-1].page+out[n-1].length == r.page {
			out[n-1].length += r.length
			continue
		}
		out = append(out, r)
	}
	return slices.Clone(out)
}
