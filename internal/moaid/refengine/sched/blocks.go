package sched

import (
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// noBlock stands in a table for a block that is not kept.
const noBlock = -1

// pool hands out block ids.
type pool struct {
	free  []int
	total int
}

func newPool(n int) *pool {
	p := &pool{total: n}
	for id := n - 1; id >= 0; id-- {
		p.free = append(p.free, id)
	}
	return p
}

func (p *pool) take() int {
	id := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	return id
}

func (p *pool) give(id int) { p.free = append(p.free, id) }

// tables are one request's blocks, by group and block number.
type tables struct {
	fp     *kvcache.Fingerprint
	blocks [][]int
}

func newTables(fp *kvcache.Fingerprint) tables {
	return tables{fp: fp, blocks: make([][]int, len(fp.Groups))}
}

// missing is how many blocks are needed so that positions below tokens can be written.
func (t *tables) missing(tokens int) int {
	n := 0
	for g := range t.blocks {
		n += max(0, blocksOf(tokens, t.fp.Storage.BlockSize)-len(t.blocks[g]))
	}
	return n
}

// grow takes the missing blocks; the pool has enough.
func (t *tables) grow(p *pool, tokens int) {
	for g := range t.blocks {
		for len(t.blocks[g]) < blocksOf(tokens, t.fp.Storage.BlockSize) {
			t.blocks[g] = append(t.blocks[g], p.take())
		}
	}
}

// forPayload is how many blocks a payload fills.
func forPayload(pl kvcache.Payload) int {
	n := 0
	for _, s := range pl.Sections {
		n += s.Blocks
	}
	return n
}

// fill takes blocks for a payload; the pool has enough.
func (t *tables) fill(p *pool, pl kvcache.Payload) {
	for _, s := range pl.Sections {
		b := make([]int, 0, s.FirstBlock+s.Blocks)
		for range s.FirstBlock {
			b = append(b, noBlock)
		}
		for range s.Blocks {
			b = append(b, p.take())
		}
		t.blocks[s.Group] = b
	}
}

// slide gives back the blocks that no position from next on can see.
func (t *tables) slide(p *pool, next int) {
	for g, group := range t.fp.Groups {
		if group.Kind != kvcache.GroupSliding {
			continue
		}
		for b, id := range t.blocks[g] {
			if (b+1)*t.fp.Storage.BlockSize > next-group.Window+1 {
				break
			}
			if id != noBlock {
				p.give(id)
				t.blocks[g][b] = noBlock
			}
		}
	}
}

// release gives everything back.
func (t *tables) release(p *pool) {
	for g := range t.blocks {
		for _, id := range t.blocks[g] {
			if id != noBlock {
				p.give(id)
			}
		}
		t.blocks[g] = nil
	}
}

// held reports whether the request has blocks.
func (t *tables) held() bool { return len(t.blocks[0]) > 0 }

// snapshot is a copy that later changes do not touch.
func (t *tables) snapshot() [][]int {
	out := make([][]int, len(t.blocks))
	for g := range out {
		out[g] = slices.Clone(t.blocks[g])
	}
	return out
}

func blocksOf(tokens, size int) int { return (tokens + size - 1) / size }

// mostBlocks bounds what one request of tokens tokens can hold at once when at
// most chunk of them are computed in a step.
func mostBlocks(fp *kvcache.Fingerprint, tokens, chunk int) int {
	n := 0
	for _, g := range fp.Groups {
		all := blocksOf(tokens, fp.Storage.BlockSize)
		if g.Kind == kvcache.GroupSliding {
			all = min(all, blocksOf(g.Window+chunk, fp.Storage.BlockSize)+1)
		}
		n += all
	}
	return n
}
