package transformer

import (
	"fmt"
	"runtime"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/kernel"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// Model is one tensor-parallel rank of a model, with weights. It is not safe for
// concurrent use.
type Model struct {
	model   refmodel.Model
	seed    uint64
	shard   shard
	w       *weights
	rope    *kernel.Rope
	workers []*scratch
}

// New builds the weights of one of size tensor-parallel ranks from seed.
func New(m refmodel.Model, seed uint64, rank, size int) (*Model, error) {
	f := refmodel.DefaultFormat()
	f.Tensor = size
	if err := f.Check(m); err != nil {
		return nil, err
	}
	if rank < 0 || rank >= size {
		return nil, fmt.Errorf("rank %d is not one of %d", rank, size)
	}
	c := m.Config
	w, err := buildWeights(m, seed)
	if err != nil {
		return nil, fmt.Errorf("build weights: %w", err)
	}
	s := shardOf(c, rank, size)
	s.cut(c, w)
	rotated := c.HeadDim
	if c.Latent.Dim > 0 {
		rotated = c.Latent.Rope
	}
	t := &Model{model: m, seed: seed, shard: s, w: w, rope: kernel.NewRope(rotated, c.MaxPosition, c.RopeBase)}
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
// all. Chunks must be of different sequences, and the same on all ranks. A layer takes
// three gathers. An error is g's; what the cache holds of the chunks' tokens is then
// undefined.
func (m *Model) Forward(cache *Cache, chunks []Chunk, g Gather) ([][]float32, error) {
	b := m.newPass(cache, chunks, g)
	n, c := len(b.rows), m.model.Config
	tiles, attention := rowTiles(n), b.attentionTiles()
	for l := range c.Layers {
		m.spread(tiles, func(s *scratch, r span) { b.project(s, l, r) })
		m.spread(attention, func(s *scratch, r span) { b.attend(s, l, r) })
		if err := b.gather(b.attn, b.allAttn, n); err != nil {
			return nil, err
		}
		m.spread(tiles, func(s *scratch, r span) { b.feedIn(s, l, r) })
		if err := b.gather(b.inner, b.allInner, n*b.chosen); err != nil {
			return nil, err
		}
		m.spread(tiles, func(s *scratch, r span) { b.feedOut(s, l, r) })
		if err := b.gather(b.delta, b.allDelta, n); err != nil {
			return nil, err
		}
		kernel.Add(b.hidden, b.allDelta)
	}
	if m.shard.rank > 0 {
		return nil, nil
	}
	return b.logits(), nil
}

type rowOf struct{ chunk, pos int }

// span is rows first to last-1 of a pass. For attention they are of one chunk,
// and head is the KV head, of the rank's.
type span struct{ first, last, head int }

// pass is one Forward. What a rank computes its own part of is there twice: the rank's
// part, and that of all ranks; they are the same memory where there is one rank.
type pass struct {
	m      *Model
	cache  *Cache
	g      Gather
	chunks []Chunk
	rows   []rowOf
	kvHeads,
	chosen int // experts a row
	hidden          []float32
	query           []float32
	attn, allAttn   []float32
	inner, allInner []float32 // by row and chosen expert
	delta, allDelta []float32
	whole           []float32 // of a gather
	picks           []pick    // by row and chosen expert; of mixtures only
}

func (m *Model) newPass(cache *Cache, chunks []Chunk, g Gather) *pass {
	c, s := m.model.Config, m.shard
	b := &pass{m: m, cache: cache, g: g, chunks: chunks, kvHeads: s.kvHeads, chosen: max(1, c.Experts.Top)}
	var tokens []int
	for i, ch := range chunks {
		for j := range ch.Tokens {
			b.rows = append(b.rows, rowOf{chunk: i, pos: ch.Start + j})
		}
		tokens = append(tokens, ch.Tokens...)
	}
	n := len(b.rows)
	b.hidden = make([]float32, n*c.Hidden)
	for t, id := range tokens {
		copy(b.hidden[t*c.Hidden:(t+1)*c.Hidden], m.w.embed[id*c.Hidden:])
	}
	b.query = make([]float32, n*s.heads*s.queryDim)
	parts := func(own int) (part, all []float32) {
		part = make([]float32, n*own)
		if s.size == 1 {
			return part, part
		}
		return part, make([]float32, n*own*s.size)
	}
	b.attn, b.allAttn = parts(s.heads * c.HeadDim)
	b.inner, b.allInner = parts(b.chosen * s.ffn)
	b.delta, b.allDelta = parts(s.hidden)
	if s.experts {
		b.picks = make([]pick, n*b.chosen)
	}
	if s.size > 1 {
		b.whole = make([]float32, max(len(b.allAttn), len(b.allInner), len(b.allDelta)))
	}
	return b
}

// gather joins the parts of n rows: a row of all is the rows of the ranks, side by side.
func (b *pass) gather(part, all []float32, n int) error {
	size := b.m.shard.size
	if size == 1 {
		return nil
	}
	whole := b.whole[:len(all)]
	if err := b.g.AllGather(part, whole); err != nil {
		return fmt.Errorf("join the parts of %d ranks: %w", size, err)
	}
	width := len(part) / n
	for rank := range size {
		for i := range n {
			copy(all[(i*size+rank)*width:(i*size+rank+1)*width], whole[(rank*n+i)*width:])
		}
	}
	return nil
}

func (b *pass) logits() [][]float32 {
	c, w := b.m.model.Config, b.m.w
	out := make([][]float32, len(b.chunks))
	normed := make([]float32, c.Hidden)
	t := 0
	for i, ch := range b.chunks {
		t += len(ch.Tokens)
		if !ch.Logits {
			continue
		}
		kernel.RMSNorm(normed, b.hidden[(t-1)*c.Hidden:t*c.Hidden], w.norm)
		out[i] = make([]float32, c.Vocab)
		kernel.MatMul(out[i], w.head, normed, 1, c.Vocab, c.Hidden)
	}
	return out
}

// normRows normalises rows of the hidden state.
func (b *pass) normRows(out []float32, r span, gain []float32) {
	d := b.m.model.Config.Hidden
	for i := range r.last - r.first {
		kernel.RMSNorm(out[i*d:(i+1)*d], b.hidden[(r.first+i)*d:(r.first+i+1)*d], gain)
	}
}
