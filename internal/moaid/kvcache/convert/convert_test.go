package convert

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache/element"
	"pgregory.net/rapid"
)

// TestConvertThenRead: reading an element of what was converted is converting
// the element that was read, for every element of every rank; nothing else is
// there, and what changed is counted.
func TestConvertThenRead(t *testing.T) {
	eachPair(t, func(t *rapid.T, from, to format, exact, _ bool) {
		src, dst := drawPair(t, from, to, true)
		kv := cache{rapid.Uint32().Draw(t, "seed"), rapid.IntRange(1, 150).Draw(t, "tokens")}
		c := mustNew(t, src, dst)
		payloads, own := kv.payloads(&src)
		for rank := range dst.Ranks.Tensor {
			p, err := dst.PayloadFor(kv.tokens)
			if err != nil {
				t.Fatal(err)
			}
			got := bytes.Repeat([]byte{0xa5}, int(p.Bytes))
			var stored [][]kvcache.Range
			if !c.Identity() { // which reads the rank's own payload
				stored = own
			}
			count, err := c.Fill(got, kv.tokens, rank, 0, source(payloads, stored))
			if err != nil {
				t.Fatal(err)
			}
			expect := make([]byte, p.Bytes)
			var expectCount Count
			each(&dst, kv.tokens, rank, func(p place, at int64) {
				if p.token < firstOf(&src, p.layer, kv.tokens) {
					return
				}
				code, e := want(&src, &dst, kv.code(src.Storage.DType, p.layer, p.head, p.token, p.part, p.dim))
				store(expect[at:], code, dst.Storage.DType.Size())
				switch e {
				case element.Clipped:
					expectCount.Clipped++
				case element.Rounded:
					expectCount.Rounded++
				case element.Exact:
				}
			})
			if !bytes.Equal(got, expect) {
				t.Fatalf("rank %d differs: %+v to %+v", rank, src, dst)
			}
			if count != expectCount || exact && count.Changed() > 0 {
				t.Fatalf("counted %+v, want %+v", count, expectCount)
			}
		}
	})
}

// TestAnySplitIsTheWhole: ranges of any lengths concatenate to the whole, and
// their counts sum up to its count.
func TestAnySplitIsTheWhole(t *testing.T) {
	eachPair(t, func(t *rapid.T, from, to format, _, _ bool) {
		src, dst := drawPair(t, from, to, true)
		kv := cache{1, rapid.IntRange(1, 40).Draw(t, "tokens")}
		c := mustNew(t, src, dst)
		payloads, _ := kv.payloads(&src)
		p, err := dst.PayloadFor(kv.tokens)
		if err != nil {
			t.Fatal(err)
		}
		rank := rapid.IntRange(0, dst.Ranks.Tensor-1).Draw(t, "rank")
		whole, parts := make([]byte, p.Bytes), make([]byte, p.Bytes)
		count, err := c.Fill(whole, kv.tokens, rank, 0, source(payloads, nil))
		if err != nil {
			t.Fatal(err)
		}
		var sum Count
		for at := 0; at < len(parts); {
			end := min(len(parts), at+rapid.IntRange(1, 1+len(parts)/3).Draw(t, "length"))
			n, err := c.Fill(parts[at:end], kv.tokens, rank, int64(at), source(payloads, nil))
			if err != nil {
				t.Fatal(err)
			}
			sum, at = sum.Add(n), end
		}
		if !bytes.Equal(whole, parts) || sum != count {
			t.Fatalf("parts differ from the whole, or %+v from %+v", sum, count)
		}
	})
}

// TestThereAndBack: what was converted without loss converts back to the same
// bytes.
func TestThereAndBack(t *testing.T) {
	eachPair(t, func(t *rapid.T, from, to format, exact, reversible bool) {
		if !exact {
			return
		}
		src, dst := drawPair(t, from, to, false)
		kv := cache{rapid.Uint32().Draw(t, "seed"), rapid.IntRange(1, 150).Draw(t, "tokens")}
		payloads, _ := kv.payloads(&src)
		if !reversible { // -0 and the sign of NaN do not come back
			for _, p := range payloads {
				for i, b := range p {
					if b == 0x80 || b == 0xff {
						p[i] = 0
					}
				}
			}
		}
		there := all(t, mustNew(t, src, dst), &dst, kv.tokens, payloads)
		back := all(t, mustNew(t, dst, src), &src, kv.tokens, there)
		for rank := range payloads {
			if !bytes.Equal(payloads[rank], back[rank]) {
				t.Fatalf("rank %d did not come back: %+v to %+v", rank, src, dst)
			}
		}
	})
}

func all(t *rapid.T, c *Converter, dst *kvcache.Fingerprint, tokens int, payloads [][]byte) [][]byte {
	var out [][]byte
	for rank := range dst.Ranks.Tensor {
		p, err := dst.PayloadFor(tokens)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, p.Bytes)
		if _, err := c.Fill(b, tokens, rank, 0, source(payloads, nil)); err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// TestIdentityIsTheSameBytes: with equal groups and blocks, Identity says so just
// when every rank's payload is the same bytes. Groups or blocks that differ are no
// identity, although their pages may fall into the same order for some prompts.
func TestIdentityIsTheSameBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := exactPairs[0].from
		src, dst := drawPair(t, f, f, false)
		if rapid.Bool().Draw(t, "same") {
			dst = src
		}
		if rapid.Bool().Draw(t, "same storage") {
			dst.Storage = src.Storage
		}
		if dst.Validate() != nil {
			t.Skip()
		}
		c := mustNew(t, src, dst)
		if src.Hash() == dst.Hash() && !c.Identity() {
			t.Fatal("equal formats are no identity")
		}
		if src.Ranks != dst.Ranks {
			if c.Identity() {
				t.Fatal("other ranks are an identity")
			}
			return
		}
		for _, seed := range []uint32{1, 2} {
			kv := cache{seed, 100}
			payloads, _ := kv.payloads(&src)
			c.identity = false // the slow way
			same := slices.EqualFunc(payloads, all(t, c, &dst, kv.tokens, payloads), bytes.Equal)
			alike := src.Storage.BlockSize == dst.Storage.BlockSize && reflect.DeepEqual(src.Groups, dst.Groups)
			if c = mustNew(t, src, dst); same != c.Identity() && (alike || c.Identity()) {
				t.Fatalf("same bytes: %t, Identity: %t: %+v to %+v", same, c.Identity(), src, dst)
			}
		}
	})
}

func TestFillRefuses(t *testing.T) {
	src := base(1)
	src.Storage = storage(16)
	src.Groups = []kvcache.Group{{Kind: kvcache.GroupFull, Layers: []int{0}, Heads: 2, KeyDim: 8, ValueDim: 8}}
	dst := src
	dst.Storage.BlockSize, dst.Storage.KernelBlock = 32, 32
	c := mustNew(t, src, dst)
	fine := func(int, int64, []byte) error { return nil }
	for name, call := range map[string]func() error{
		"no tokens":      func() error { _, err := c.Fill(nil, 0, 0, 0, fine); return err },
		"rank below":     func() error { _, err := c.Fill(nil, 1, -1, 0, fine); return err },
		"rank above":     func() error { _, err := c.Fill(nil, 1, 1, 0, fine); return err },
		"offset below":   func() error { _, err := c.Fill(make([]byte, 1), 1, 0, -1, fine); return err },
		"beyond the end": func() error { _, err := c.Fill(make([]byte, 2), 1, 0, dst.PageBytes(0)-1, fine); return err },
		"far beyond":     func() error { _, err := c.Fill(make([]byte, 1), 1, 0, 1<<62, fine); return err },
		"stored ranks":   func() error { _, err := c.Available(1, nil); return err },
		"stored tokens":  func() error { _, err := c.Available(0, make([][]kvcache.Range, 1)); return err },
	} {
		if call() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := c.Fill(make([]byte, 1), 1, 0, 0, func(int, int64, []byte) error { return errNotStored }); !errors.Is(err, errNotStored) {
		t.Errorf("the source's error is lost: %v", err)
	}
}
