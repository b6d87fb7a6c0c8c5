package transformer

import "github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/kernel"

// feedIn adds attention to the rows, and computes the rank's columns of the inner
// layer of the feed-forward part.
func (b *pass) feedIn(s *scratch, l int, r span) {
	c, lw, n := b.m.model.Config, &b.m.w.layers[l], r.last-r.first
	width, ffn := c.Heads*c.HeadDim, b.m.shard.ffn
	delta, normed := s.take(0, n*c.Hidden), s.take(1, n*c.Hidden)
	kernel.MatMul(delta, lw.o, b.allAttn[r.first*width:r.last*width], n, c.Hidden, width)
	kernel.Add(b.hidden[r.first*c.Hidden:r.last*c.Hidden], delta)
	b.normRows(normed, r, lw.normFFN)
	if !b.m.shard.experts {
		inner(s, b.inner[r.first*ffn:r.last*ffn], lw.gateUp[0], normed, n, ffn, c.Hidden)
		return
	}
	scores := s.take(3, c.Experts.Count)
	for i := range n {
		x := normed[i*c.Hidden : (i+1)*c.Hidden]
		kernel.MatMul(scores, lw.router, x, 1, c.Experts.Count, c.Hidden)
		picks := b.picks[(r.first+i)*b.chosen : (r.first+i+1)*b.chosen]
		choose(picks, scores)
		for j, p := range picks {
			at := (r.first+i)*b.chosen + j
			inner(s, b.inner[at*ffn:(at+1)*ffn], lw.gateUp[p.expert], x, 1, ffn, c.Hidden)
		}
	}
}

// inner computes ffn columns of the inner layer of n rows.
func inner(s *scratch, out, gateUp, x []float32, n, ffn, hidden int) {
	both := s.take(2, 2*n*ffn)
	kernel.MatMul(both, gateUp, x, n, 2*ffn, hidden)
	for i := range n {
		gate, up := both[2*i*ffn:(2*i+1)*ffn], both[(2*i+1)*ffn:(2*i+2)*ffn]
		kernel.SwiGLU(gate, up)
		copy(out[i*ffn:(i+1)*ffn], gate)
	}
}

// feedOut computes the rank's columns of what the feed-forward part adds to the rows.
// Experts are added in the order in which they were chosen.
func (b *pass) feedOut(s *scratch, l int, r span) {
	ffn, hidden, lw := b.m.model.Config.FFN, b.m.shard.hidden, &b.m.w.layers[l]
	if !b.m.shard.experts {
		kernel.MatMul(b.delta[r.first*hidden:r.last*hidden], lw.down[0], b.allInner[r.first*ffn:r.last*ffn], r.last-r.first, hidden, ffn)
		return
	}
	one := s.take(0, hidden)
	for i := r.first; i < r.last; i++ {
		out := b.delta[i*hidden : (i+1)*hidden]
		clear(out)
		for j, p := range b.picks[i*b.chosen : (i+1)*b.chosen] {
			at := i*b.chosen + j
			kernel.MatMul(one, lw.down[p.expert], b.allInner[at*ffn:(at+1)*ffn], 1, hidden, ffn)
			for d, x := range one {
				out[d] += float32(x * p.weight)
			}
		}
	}
}

// pick is an expert that a row uses.
type pick struct {
	expert int
	weight float32
}

// choose takes the experts with the greatest scores, of equal ones the first, the
// greatest first. Their weights are the softmax over the chosen.
func choose(picks []pick, scores []float32) {
	taken := make([]bool, len(scores))
	for j := range picks {
		best := pick{expert: -1}
		for e, x := range scores {
			if !taken[e] && (best.expert < 0 || x > best.weight) {
				best = pick{expert: e, weight: x}
			}
		}
		taken[best.expert] = true
		picks[j] = best
	}
	weights := make([]float32, len(picks))
	for j, p := range picks {
		weights[j] = p.weight
	}
	kernel.Softmax(weights)
	for j := range picks {
		picks[j].weight = weights[j]
	}
}
