package transformer

import (
	"sync"
	"sync/atomic"
)

// tileRows is how many rows one piece of work has at most.
const tileRows = 64

// scratch is one worker's memory, by use.
type scratch struct{ bufs [5][]float32 }

func (s *scratch) take(use, n int) []float32 {
	if cap(s.bufs[use]) < n {
		s.bufs[use] = make([]float32, n+n/4)
	}
	return s.bufs[use][:n]
}

// spread runs f over all tiles. Tiles do not depend on each other, and which
// worker takes which is irrelevant to the result.
func (m *Model) spread(tiles []span, f func(*scratch, span)) {
	if len(tiles) == 1 || len(m.workers) == 1 {
		for _, t := range tiles {
			f(m.workers[0], t)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for _, s := range m.workers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(tiles) {
					return
				}
				f(s, tiles[i])
			}
		})
	}
	wg.Wait()
}

func rowTiles(n int) []span {
	var out []span
	for at := 0; at < n; at += tileRows {
		out = append(out, span{first: at, last: min(n, at+tileRows)})
	}
	return out
}

// attentionTiles cuts the rows so that each tile is of one chunk and KV head.
func (b *pass) attentionTiles() []span {
	var out []span
	for i := 0; i < len(b.rows); {
		j := i
		for j < len(b.rows) && j-i < tileRows && b.rows[j].chunk == b.rows[i].chunk {
			j++
		}
		for head := range b.kvHeads {
			out = append(out, span{first: i, last: j, head: head})
		}
		i = j
	}
	return out
}
