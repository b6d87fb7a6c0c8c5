package transformer

import "github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"

// shard is what one rank computes: its heads, and its columns of what the two
// matrices of the feed-forward part give. Everything else is computed by every rank.
type shard struct {
	rank, size      int
	heads, kvHeads  int // the rank's number of them
	ffn, hidden     int // the rank's number of columns
	firstHead       int
	firstKV         int
	inner, outer    int // the first of the columns
	queryDim        int // elements of a query
	latent, experts bool
}

func shardOf(c refmodel.Config, rank, size int) shard {
	s := shard{rank: rank, size: size, heads: c.Heads / size, kvHeads: max(1, c.KVHeads/size), ffn: c.FFN / size, hidden: c.Hidden / size, queryDim: c.HeadDim}
	s.firstHead, s.firstKV = rank*s.heads, rank*c.KVHeads/size
	s.inner, s.outer = rank*s.ffn, rank*s.hidden
	if c.Latent.Dim > 0 {
		s.queryDim = c.Latent.Dim + c.Latent.Rope
	}
	s.latent, s.experts = c.Latent.Dim > 0, c.Experts.Count > 0
	return s
}

// cut keeps of the weights what the rank needs, so that the rest can be freed. Logits
// are computed by rank 0 only.
func (s shard) cut(c refmodel.Config, w *weights) {
	if s.size == 1 {
		return
	}
	if s.rank > 0 {
		w.head = nil
	}
	for l := range w.layers {
		lw := &w.layers[l]
		if s.latent {
			lw.query = rows(lw.query, (c.HeadDim+c.Latent.Rope)*c.Hidden, s.firstHead, s.heads)
			lw.keyUp = rows(lw.keyUp, c.HeadDim*c.Latent.Dim, s.firstHead, s.heads)
			lw.valueUp = rows(lw.valueUp, c.HeadDim*c.Latent.Dim, s.firstHead, s.heads)
		} else {
			head := c.HeadDim * c.Hidden
			lw.qkv = join(rows(lw.qkv, head, s.firstHead, s.heads),
				rows(lw.qkv, head, c.Heads+s.firstKV, s.kvHeads),
				rows(lw.qkv, head, c.Heads+c.KVHeads+s.firstKV, s.kvHeads))
		}
		for e := range lw.gateUp {
			lw.gateUp[e] = join(rows(lw.gateUp[e], c.Hidden, s.inner, s.ffn), rows(lw.gateUp[e], c.Hidden, c.FFN+s.inner, s.ffn))
			lw.down[e] = rows(lw.down[e], c.FFN, s.outer, s.hidden)
		}
	}
}

// rows copies n units of a matrix from the first on.
func rows(m []float32, unit, first, n int) []float32 {
	return append([]float32{}, m[first*unit:(first+n)*unit]...)
}

func join(parts ...[]float32) []float32 {
	var out []float32
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}
