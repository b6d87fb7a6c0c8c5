package transformer

import (
	"fmt"
	"math"
	"runtime"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/kernel"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// Model is a model with weights. It is not safe for concurrent use.
type Model struct {
	cfg     refmodel.Config
	w       *weights
	rope    *kernel.Rope
	workers []*scratch
}

// New builds the weights of one of size tensor-parallel ranks from seed.
func New(m refmodel.Model, seed uint64, rank, size int) (*Model, error) {
	if rank != 0 || size != 1 {
		return nil, fmt.Errorf("model %s: rank %d of %d", m.Name, rank, size)
	}
	w, err := buildWeights(m, seed)
	if err != nil {
		return nil, fmt.Errorf("build weights: %w", err)
	}
	c := m.Config
	t := &Model{cfg: c, w: w, rope: kernel.NewRope(c.HeadDim, c.MaxPosition, c.RopeBase)}
	for range min(2, runtime.GOMAXPROCS(0)) {
		t.workers = append(t.workers, &scratch{})
	}
	return t, nil
}

// Chunk is consecutive new tokens of one sequence.
type Chunk struct {
	Tokens []int
	Start  int     // position of the first; all earlier ones are in the cache
	Tables [][]int // block ids by group and block number; must cover every position that is read or written
	Logits bool    // whether logits after the last token are wanted
}

// Forward computes the chunks and stores this rank's keys and values of them. Rank 0
// returns logits by chunk, nil where none were wanted; other ranks return no logits at
// all. Chunks must be of different sequences, and the same on all ranks. An error is g's;
// what the cache holds of the chunks' tokens is then undefined.
func (m *Model) Forward(cache *Cache, chunks []Chunk, g Gather) ([][]float32, error) {
	c := m.cfg
	n := 0
	var rows []rowOf
	for i, ch := range chunks {
		for j := range ch.Tokens {
			rows = append(rows, rowOf{chunk: i, pos: ch.Start + j})
		}
		n += len(ch.Tokens)
	}
	b := &pass{m: m, cache: cache, chunks: chunks, rows: rows, hidden: make([]float32, n*c.Hidden),
		query: make([]float32, n*c.Heads*c.HeadDim), attn: make([]float32, n*c.Heads*c.HeadDim)}
	t := 0
	for _, ch := range chunks {
		for _, id := range ch.Tokens {
			copy(b.hidden[t*c.Hidden:(t+1)*c.Hidden], m.w.embed[id*c.Hidden:])
			t++
		}
	}
	tiles := b.attentionTiles()
	for l := range c.Layers {
		m.spread(rowTiles(n), func(s *scratch, r span) { b.project(s, l, r) })
		m.spread(tiles, func(s *scratch, r span) { b.attend(s, l, r) })
		m.spread(rowTiles(n), func(s *scratch, r span) { b.combine(s, l, r) })
	}
	out := make([][]float32, len(chunks))
	t = 0
	for i, ch := range chunks {
		t += len(ch.Tokens)
		if !ch.Logits {
			continue
		}
		normed := make([]float32, c.Hidden)
		kernel.RMSNorm(normed, b.hidden[(t-1)*c.Hidden:t*c.Hidden], m.w.norm)
		out[i] = make([]float32, c.Vocab)
		kernel.MatMul(out[i], m.w.head, normed, 1, c.Vocab, c.Hidden)
	}
	return out, nil
}

type rowOf struct{ chunk, pos int }

// span is rows first to last-1 of a pass. For attention they are of one chunk,
// and head is the KV head.
type span struct{ first, last, head int }

// pass is one Forward.
type pass struct {
	m      *Model
	cache  *Cache
	chunks []Chunk
	rows   []rowOf
	hidden []float32
	query  []float32
	attn   []float32
}

// project computes queries of the rows and writes their keys and values.
func (b *pass) project(s *scratch, l int, r span) {
	c, lw, n := b.m.cfg, &b.m.w.layers[l], r.last-r.first
	width := (c.Heads + 2*c.KVHeads) * c.HeadDim
	normed, qkv := s.take(0, n*c.Hidden), s.take(1, n*width)
	for i := range n {
		kernel.RMSNorm(normed[i*c.Hidden:(i+1)*c.Hidden], b.hidden[(r.first+i)*c.Hidden:(r.first+i+1)*c.Hidden], lw.normAttn)
	}
	kernel.MatMul(qkv, lw.qkv, normed, n, width, c.Hidden)
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	for i := range n {
		row, v := b.rows[r.first+i], qkv[i*width:(i+1)*width]
		for h := range c.Heads + c.KVHeads {
			b.m.rope.Apply(v[h*c.HeadDim:(h+1)*c.HeadDim], row.pos)
		}
		copy(b.query[(r.first+i)*q:(r.first+i+1)*q], v)
		b.cache.write(l, b.chunks[row.chunk].Tables, row.pos, v[q:q+kv], v[q+kv:])
	}
}

// attend computes one KV head's attention of rows that belong to one chunk.
func (b *pass) attend(s *scratch, l int, r span) {
	c := b.m.cfg
	chunk := b.chunks[b.rows[r.first].chunk]
	end := b.rows[r.last-1].pos + 1
	base := firstSeen(c.Windows[l], b.rows[r.first].pos)
	n, group, width := end-base, c.Heads/c.KVHeads, c.Heads*c.HeadDim
	keys, values, scores := s.take(0, n*c.HeadDim), s.take(1, n*c.HeadDim), s.take(2, n)
	scale := float32(1 / math.Sqrt(float64(c.HeadDim)))
	b.cache.gather(l, chunk.Tables, r.head, base, end, keys, values)
	for t := r.first; t < r.last; t++ {
		pos := b.rows[t].pos
		from := firstSeen(c.Windows[l], pos) - base
		for h := r.head * group; h < (r.head+1)*group; h++ {
			at := t*width + h*c.HeadDim
			kernel.Attend(b.attn[at:at+c.HeadDim], b.query[at:at+c.HeadDim], keys[from*c.HeadDim:], values[from*8:], scores, pos+1-base-from, n, scale)
		}
	}
}

// combine adds attention and the feed-forward part to the rows.
func (b *pass) combine(s *scratch, l int, r span) {
	c, lw, n := b.m.cfg, &b.m.w.layers[l], r.last-r.first
	width := c.Heads * c.HeadDim
	hidden := b.hidden[r.first*c.Hidden : r.last*c.Hidden]
	delta, normed, gateUp, inner := s.take(0, n*c.Hidden), s.take(1, n*c.Hidden), s.take(2, 2*n*c.FFN), s.take(3, n*c.FFN)
	kernel.MatMul(delta, lw.o, b.attn[r.first*width:r.last*width], n, c.Hidden, width)
	kernel.Add(hidden, delta)
	for i := range n {
		kernel.RMSNorm(normed[i*c.Hidden:(i+1)*c.Hidden], hidden[i*c.Hidden:(i+1)*c.Hidden], lw.normFFN)
	}
	kernel.MatMul(gateUp, lw.gateUp, normed, n, 2*c.FFN, c.Hidden)
	for i := range n {
		gate, up := gateUp[2*i*c.FFN:(2*i+1)*c.FFN], gateUp[(2*i+1)*c.FFN:(2*i+2)*c.FFN]
		kernel.SwiGLU(gate, up)
		copy(inner[i*c.FFN:(i+1)*c.FFN], gate)
	}
	kernel.MatMul(delta, lw.down, inner, n, c.Hidden, c.FFN)
	kernel.Add(hidden, delta)
}

func firstSeen(window, pos int) int {
	if window == 0 {
		return 0
	}
	return max(0, pos-window+1)
}
