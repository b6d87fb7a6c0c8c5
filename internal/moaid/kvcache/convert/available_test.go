package convert

import (
	"slices"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"pgregory.net/rapid"
)

// TestAvailableIsWhatFillCanRead: of any stored ranges, available is just those
// destination blocks that Fill can make of them alone; of all, it is all that
// travels.
func TestAvailableIsWhatFillCanRead(t *testing.T) {
	f := exactPairs[0].from
	rapid.Check(t, func(t *rapid.T) {
		src, dst := drawPair(t, f, f, true)
		kv := cache{3, rapid.IntRange(1, 200).Draw(t, "tokens")}
		c := mustNew(t, src, dst)
		payloads, own := kv.payloads(&src)
		stored := make([][]kvcache.Range, len(own))
		for rank := range own {
			for _, r := range own[rank] { // some pieces of it, in any order
				for range rapid.IntRange(0, 3).Draw(t, "pieces") {
					from := rapid.Int64Range(0, r.Length-1).Draw(t, "from")
					if rapid.Bool().Draw(t, "from the start") {
						from = 0
					}
					length := rapid.Int64Range(0, r.Length-from).Draw(t, "length")
					if rapid.Bool().Draw(t, "to the end") {
						length = r.Length - from
					}
					stored[rank] = append(stored[rank], kvcache.Range{Offset: r.Offset + from, Length: length})
				}
			}
		}
		got, err := c.Available(kv.tokens, stored)
		if err != nil {
			t.Fatal(err)
		}
		merged := make([][]kvcache.Range, len(stored))
		for rank := range stored {
			for _, s := range merge(stored[rank]) {
				merged[rank] = append(merged[rank], kvcache.Range{Offset: s.from, Length: s.to - s.from})
			}
		}
		read := source(payloads, merged)
		for rank, ranges := range got {
			checkRanges(t, &dst, kv.tokens, rank, ranges)
			for _, r := range ranges {
				if _, err := c.Fill(make([]byte, r.Length), kv.tokens, rank, r.Offset, read); err != nil {
					t.Fatalf("available %+v of rank %d: %v", r, rank, err)
				}
			}
			if !c.Identity() {
				checkNoneLeftOut(t, &src, &dst, kv.tokens, rank, ranges, merged)
			}
		}
		full, err := c.Available(kv.tokens, own)
		if err != nil {
			t.Fatal(err)
		}
		for rank := range full {
			p, err := dst.PayloadFor(kv.tokens)
			if err != nil {
				t.Fatal(err)
			}
			if kvcache.TotalBytes(full[rank]) != kvcache.TotalBytes(dst.Own(p, rank)) {
				t.Fatalf("rank %d: %+v of %+v", rank, full[rank], dst.Own(p, rank))
			}
		}
	})
}

// checkRanges: ascending, apart from each other, and of what travels only.
func checkRanges(t *rapid.T, dst *kvcache.Fingerprint, tokens, rank int, ranges []kvcache.Range) {
	p, err := dst.PayloadFor(tokens)
	if err != nil {
		t.Fatal(err)
	}
	last := int64(-1)
	for _, r := range ranges {
		if r.Offset <= last || r.Length < 1 {
			t.Fatalf("%+v do not ascend apart", ranges)
		}
		last = r.Offset + r.Length
	}
	owned := int64(0)
	for _, o := range overlap(merge(ranges), dst.Own(p, rank)) {
		owned += o.Length
	}
	if owned != kvcache.TotalBytes(ranges) {
		t.Fatalf("%+v are not all of %+v", ranges, dst.Own(p, rank))
	}
}

// checkNoneLeftOut: a destination block is available if every source block that
// has one of its tokens is stored on every rank that has one of its heads.
func checkNoneLeftOut(t *rapid.T, src, dst *kvcache.Fingerprint, tokens, rank int, got []kvcache.Range, stored [][]kvcache.Range) {
	to, err := dst.PayloadFor(tokens)
	if err != nil {
		t.Fatal(err)
	}
	from, err := src.PayloadFor(tokens)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range to.Sections {
		if dst.Primary(s.Group, rank) != rank {
			continue
		}
		for b := range s.Blocks {
			block := kvcache.Range{Offset: s.Offset + int64(b)*s.BlockBytes, Length: s.BlockBytes}
			complete := true
			for token := (s.FirstBlock + b) * dst.Storage.BlockSize; token < min(tokens, (s.FirstBlock+b+1)*dst.Storage.BlockSize); token++ {
				for _, q := range sourceBlocks(src, dst, s.Group, rank, token, from) {
					complete = complete && within(q.block, stored[q.rank])
				}
			}
			if complete != within(block, got) {
				t.Fatalf("block %d of group %d of rank %d: complete %t, available %+v of stored %+v", b, s.Group, rank, complete, got, stored)
			}
		}
	}
}

type rankBlock struct {
	rank  int
	block kvcache.Range
}

// sourceBlocks gives the source blocks of one token of a destination group.
func sourceBlocks(src, dst *kvcache.Fingerprint, group, rank, token int, from kvcache.Payload) []rankBlock {
	var out []rankBlock
	for g := range src.Groups {
		shared := slices.ContainsFunc(dst.Groups[group].Layers, func(l int) bool { return slices.Contains(src.Groups[g].Layers, l) })
		if !shared || token < firstOf(src, src.Groups[g].Layers[0], from.Tokens) {
			continue
		}
		s := from.Sections[g]
		for q := range src.Ranks.Tensor {
			for h := range src.RankHeads(g) {
				head := src.FirstHead(g, q) + h - dst.FirstHead(group, rank)
				if src.Primary(g, q) == q && head >= 0 && head < dst.RankHeads(group) {
					out = append(out, rankBlock{q, kvcache.Range{Offset: s.Offset + int64(token/src.Storage.BlockSize-s.FirstBlock)*s.BlockBytes, Length: s.BlockBytes}})
				}
			}
		}
	}
	return out
}

func within(r kvcache.Range, ranges []kvcache.Range) bool {
	return slices.ContainsFunc(ranges, func(o kvcache.Range) bool { return o.Offset <= r.Offset && r.Offset+r.Length <= o.Offset+o.Length })
}

// TestAvailableOfALongPromptIsQuick: the cost does not grow with the prompt.
func TestAvailableOfALongPromptIsQuick(t *testing.T) {
	src, dst := h100(8, 80), mi300x(8, 80)
	c := mustNew(t, src, dst)
	p, err := src.PayloadFor(kvcache.MaxTokens)
	if err != nil {
		t.Fatal(err)
	}
	stored := make([][]kvcache.Range, 8)
	for rank := range stored {
		stored[rank] = []kvcache.Range{{Length: p.Bytes / 2}}
	}
	if n := testing.AllocsPerRun(10, func() {
		if _, err := c.Available(kvcache.MaxTokens, stored); err != nil {
			t.Fatal(err)
		}
	}); n > 200 {
		t.Errorf("%g allocations", n)
	}
}
