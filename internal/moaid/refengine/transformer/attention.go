package transformer

import (
	"math"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/kernel"
)

// project computes queries of the rows and writes what the cache keeps of them.
func (b *pass) project(s *scratch, l int, r span) {
	c, n := b.m.model.Config, r.last-r.first
	normed := s.take(0, n*c.Hidden)
	b.normRows(normed, r, b.m.w.layers[l].normAttn)
	if b.m.shard.latent {
		b.projectLatent(s, l, r, normed)
		return
	}
	sh := b.m.shard
	width := (sh.heads + 2*sh.kvHeads) * c.HeadDim
	qkv := s.take(1, n*width)
	kernel.MatMul(qkv, b.m.w.layers[l].qkv, normed, n, width, c.Hidden)
	q, kv := sh.heads*c.HeadDim, sh.kvHeads*c.HeadDim
	for i := range n {
		row, v := b.rows[r.first+i], qkv[i*width:(i+1)*width]
		for h := range sh.heads + sh.kvHeads {
			b.m.rope.Apply(v[h*c.HeadDim:(h+1)*c.HeadDim], row.pos)
		}
		copy(b.query[(r.first+i)*q:(r.first+i+1)*q], v)
		b.cache.write(l, b.chunks[row.chunk].Tables, row.pos, v[q:q+kv], v[q+kv:])
	}
}

// projectLatent computes what is kept for all heads, and queries that meet it: the
// matrix that would make keys of latent vectors is applied to the queries instead.
func (b *pass) projectLatent(s *scratch, l int, r span, normed []float32) {
	c, sh, lw, n := b.m.model.Config, b.m.shard, &b.m.w.layers[l], r.last-r.first
	dim, kept, plain := c.Latent.Dim, c.Latent.Dim+c.Latent.Rope, c.HeadDim+c.Latent.Rope
	queries, vectors, vector := s.take(1, n*sh.heads*plain), s.take(2, n*kept), s.take(3, kept)
	kernel.MatMul(queries, lw.query, normed, n, sh.heads*plain, c.Hidden)
	kernel.MatMul(vectors, lw.latent, normed, n, kept, c.Hidden)
	for i := range n {
		row := b.rows[r.first+i]
		for h := range sh.heads {
			from := queries[(i*sh.heads+h)*plain:][:plain]
			to := b.query[((r.first+i)*sh.heads+h)*kept:][:kept]
			kernel.MatMul(to[:dim], lw.keyUp[h*dim*c.HeadDim:(h+1)*dim*c.HeadDim], from[:c.HeadDim], 1, dim, c.HeadDim)
			copy(to[dim:], from[c.HeadDim:])
			b.m.rope.Apply(to[dim:], row.pos)
		}
		copy(vector, vectors[i*kept:(i+1)*kept])
		kernel.RMSNorm(vector[:dim], vectors[i*kept:i*kept+dim], lw.normLatent)
		b.m.rope.Apply(vector[dim:], row.pos)
		b.cache.write(l, b.chunks[row.chunk].Tables, row.pos, vector, nil)
	}
}

// attend computes one KV head's attention of rows that belong to one chunk.
func (b *pass) attend(s *scratch, l int, r span) {
	c, sh := b.m.model.Config, b.m.shard
	chunk := b.chunks[b.rows[r.first].chunk]
	end := b.rows[r.last-1].pos + 1
	base := firstSeen(c.Windows[l], b.rows[r.first].pos)
	n, group, kd, vd := end-base, sh.heads/sh.kvHeads, sh.queryDim, c.HeadDim
	scale := float32(1 / math.Sqrt(float64(c.HeadDim+c.Latent.Rope)))
	if sh.latent {
		vd = c.Latent.Dim
	}
	keys, values, scores, latent := s.take(0, n*kd), s.take(1, n*vd), s.take(2, n), s.take(3, vd)
	b.cache.gather(s, l, chunk.Tables, r.head, base, end, keys, values)
	for t := r.first; t < r.last; t++ {
		pos := b.rows[t].pos
		from := firstSeen(c.Windows[l], pos) - base
		for h := r.head * group; h < (r.head+1)*group; h++ {
			q := b.query[(t*sh.heads+h)*kd:][:kd]
			out := b.attn[(t*sh.heads+h)*c.HeadDim:][:c.HeadDim]
			if !sh.latent {
				kernel.Attend(out, q, keys[from*kd:], values[from*8:], scores, pos+1-base-from, n, scale)
				continue
			}
			kernel.Attend(latent, q, keys[from*kd:], values[from*8:], scores, pos+1-base-from, n, scale)
			kernel.MatMul(out, b.m.w.layers[l].valueUp[h*c.HeadDim*vd:(h+1)*c.HeadDim*vd], latent, 1, c.HeadDim, vd)
		}
	}
}

func firstSeen(window, pos int) int {
	if window == 0 {
		return 0
	}
	return max(0, pos-window+1)
}
