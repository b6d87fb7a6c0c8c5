package convert

import (
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// positions are the byte positions of the elements of a page of one group. In
// every packing the position is a sum of one term each for head, token and
// dimension, so that three short tables say what [kvcache.Fingerprint.At] does.
type positions struct {
	size  int    // of an element
	heads int    // of a rank
	head  [2]int // from a head to the next, by part
	token [2][]int
	dim   [2][]int
	// contiguous says that the dims of a row (one head, token and part) are neighbours.
	contiguous bool
}

// positions tabulates a group; it is empty where pages can only be copied whole.
func (c *Converter) positions(f *kvcache.Fingerprint, group int) positions {
	g := &f.Groups[group]
	p := positions{size: f.Storage.DType.Size(), heads: f.RankHeads(group), contiguous: true}
	if c.whole {
		return p
	}
	for part, dims := range [2]int{g.KeyDim, g.ValueDim} {
		if dims == 0 {
			continue
		}
		part := kvcache.Part(part)
		first := f.At(group, 0, 0, part, 0)
		if p.heads > 1 {
			p.head[part] = int(f.At(group, 1, 0, part, 0) - first)
		}
		p.token[part] = make([]int, f.Storage.BlockSize)
		for t := range p.token[part] {
			p.token[part][t] = int(f.At(group, 0, t, part, 0))
		}
		p.dim[part] = make([]int, dims)
		for d := range p.dim[part] {
			p.dim[part][d] = int(f.At(group, 0, 0, part, d) - first)
			p.contiguous = p.contiguous && p.dim[part][d] == d*p.size
		}
	}
	return p
}

func (p *positions) equal(o *positions) bool {
	if p.size != o.size || p.heads != o.heads || p.head != o.head {
		return false
	}
	for part := range 2 {
		if !slices.Equal(p.token[part], o.token[part]) || !slices.Equal(p.dim[part], o.dim[part]) {
			return false
		}
	}
	return true
}
