package convert

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// span is a range of tokens or of bytes, [from, to).
type span struct{ from, to int64 }

// Available gives, for each destination rank, the ranges of its payload for a
// prompt of tokens tokens whose source bytes are all stored; stored is by source
// rank. It names only what travels ([kvcache.Fingerprint.Own]), by whole blocks
// unless payloads are the same bytes, ascending and merged. What it costs depends
// on the number of stored ranges, not on their length.
func (c *Converter) Available(tokens int, stored [][]kvcache.Range) ([][]kvcache.Range, error) {
	if len(stored) != c.src.Ranks.Tensor {
		return nil, fmt.Errorf("ranges of %d ranks are not of %d", len(stored), c.src.Ranks.Tensor)
	}
	have := make([][]span, len(stored))
	for rank, ranges := range stored {
		have[rank] = merge(ranges)
	}
	from, err := c.src.PayloadFor(tokens)
	if err != nil {
		return nil, err
	}
	to, err := c.dst.PayloadFor(tokens)
	if err != nil {
		return nil, err
	}
	out := make([][]kvcache.Range, c.dst.Ranks.Tensor)
	for rank := range out {
		if c.identity {
			out[rank] = overlap(have[rank], c.dst.Own(to, rank))
			continue
		}
		for _, s := range to.Sections {
			if c.dst.Primary(s.Group, rank) == rank {
				out[rank] = c.availableSection(out[rank], s, rank, from, have)
			}
		}
	}
	return out, nil
}

// availableSection appends what of a destination section is available.
func (c *Converter) availableSection(out []kvcache.Range, s kvcache.Section, rank int, from kvcache.Payload, have [][]span) []kvcache.Range {
	n := int64(c.dst.Storage.BlockSize)
	tokens := int64(from.Tokens)
	first, end := int64(s.FirstBlock), int64(s.FirstBlock+s.Blocks)
	known := []span{{0, tokens}} // tokens of which everything is stored
	for group := range c.groups[s.Group].from {
		lo := int64(c.firstToken(group, from.Tokens))
		for _, q := range c.sourceRanks(group, s.Group, rank) {
			known = intersect(known, c.storedTokens(from.Sections[group], lo, tokens, have[q]))
		}
	}
	for _, k := range known {
		a, b := max((k.from+n-1)/n, first), k.to/n
		if k.to >= tokens {
			b = end
		}
		if a < b {
			out = appendRange(out, s.Offset+(a-first)*s.BlockBytes, (b-a)*s.BlockBytes)
		}
	}
	return out
}

// storedTokens gives the spans of tokens whose source blocks are stored. What is
// before the source's window takes nothing to be known.
func (c *Converter) storedTokens(s kvcache.Section, lo, tokens int64, have []span) []span {
	m, first := int64(c.src.Storage.BlockSize), int64(s.FirstBlock)
	var out []span
	for _, h := range have {
		a := (max(h.from, s.Offset) - s.Offset + s.BlockBytes - 1) / s.BlockBytes
		b := (min(h.to, s.Offset+s.Bytes()) - s.Offset) / s.BlockBytes
		if a >= b {
			continue
		}
		k := span{(first + a) * m, min((first+b)*m, tokens)}
		if k.from <= lo {
			k.from = 0
		}
		out = append(out, k)
	}
	return out
}

// firstToken is the first token of a prompt that layers of a source group keep.
func (c *Converter) firstToken(group, tokens int) int {
	if g := &c.src.Groups[group]; g.Kind == kvcache.GroupSliding {
		return max(0, tokens-g.Window)
	}
	return 0
}

// sourceRanks lists the source ranks, of each head the primary one, that have
// heads of a destination rank.
func (c *Converter) sourceRanks(from, to, rank int) []int {
	var out []int
	first := c.dst.FirstHead(to, rank)
	for h := first; h < first+c.dst.RankHeads(to); {
		q := headRank(&c.src, from, h)
		out = append(out, q)
		h = c.src.FirstHead(from, q) + c.src.RankHeads(from)
	}
	return out
}

// headRank is the lowest rank that has a head.
func headRank(f *kvcache.Fingerprint, group, head int) int {
	if h, n := f.Groups[group].Heads, f.Ranks.Tensor; h < n {
		return head * (n / h)
	}
	return head / f.RankHeads(group)
}

// merge sorts ranges and joins those that touch; empty ones are left out.
func merge(ranges []kvcache.Range) []span {
	spans := make([]span, 0, len(ranges))
	for _, r := range ranges {
		if r.Length > 0 {
			spans = append(spans, span{r.Offset, r.Offset + r.Length})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	out := spans[:0]
	for _, s := range spans {
		if n := len(out); n > 0 && s.from <= out[n-1].to {
			out[n-1].to = max(out[n-1].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}

// intersect gives what is in both of two ascending lists.
func intersect(a, b []span) []span {
	var out []span
	for i, j := 0, 0; i < len(a) && j < len(b); {
		if s := (span{max(a[i].from, b[j].from), min(a[i].to, b[j].to)}); s.from < s.to {
			out = append(out, s)
		}
		if a[i].to < b[j].to {
			i++
		} else {
			j++
		}
	}
	return out
}

func overlap(have []span, own []kvcache.Range) []kvcache.Range {
	var out []kvcache.Range
	for _, s := range intersect(have, merge(own)) {
		out = append(out, kvcache.Range{Offset: s.from, Length: s.to - s.from})
	}
	return out
}

func appendRange(out []kvcache.Range, offset, length int64) []kvcache.Range {
	if n := len(out); n > 0 && out[n-1].Offset+out[n-1].Length == offset {
		out[n-1].Length += length
		return out
	}
	return append(out, kvcache.Range{Offset: offset, Length: length})
}
