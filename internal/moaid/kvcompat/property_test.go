package kvcompat_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache/convert"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat/cases"
	"pgregory.net/rapid"
)

// drawPair gives two caches of one model and engine whose storage, groups and
// ranks are drawn.
func drawPair(t *rapid.T) (p, d kvcache.Fingerprint) {
	shapes := []kvcache.Fingerprint{cases.H100(), cases.Hybrid(), cases.Latent()}
	shape := rapid.SampledFrom(shapes).Draw(t, "shape")
	other := shape
	if rapid.IntRange(0, 3).Draw(t, "other shape") == 0 {
		other = rapid.SampledFrom(shapes).Draw(t, "decode shape")
	}
	p, d = drawStorage(t, shape), drawStorage(t, other)
	if rapid.Bool().Draw(t, "no scales") { // otherwise most pairs would differ in them
		for _, f := range []*kvcache.Fingerprint{&p, &d} {
			f.Storage.Scales = kvcache.Scales{Kind: kvcache.ScaleNone}
		}
	}
	if rapid.Bool().Draw(t, "same shape of storage") {
		q := d
		q.Storage, q.Storage.DType, q.Storage.Scales = p.Storage, d.Storage.DType, d.Storage.Scales
		if q.Validate() == nil {
			d = q
		}
	}
	return p, d
}

func drawStorage(t *rapid.T, f kvcache.Fingerprint) kvcache.Fingerprint {
	s := &f.Storage
	s.DType = rapid.SampledFrom(kvcache.DTypes()).Draw(t, "dtype")
	s.Scales = rapid.SampledFrom([]kvcache.Scales{
		{Kind: kvcache.ScaleNone}, {Kind: kvcache.ScaleNone}, {Kind: kvcache.ScaleTensor, Hash: "a"}, {Kind: kvcache.ScaleTensor, Hash: "a", Doubled: true},
		{Kind: kvcache.ScaleTensor, Hash: "b"}, {Kind: kvcache.ScaleHead, Hash: "a"}, {Kind: kvcache.ScaleToken},
	}).Draw(t, "scales")
	s.Order = rapid.SampledFrom(kvcache.Orders()).Draw(t, "order")
	s.Packing = rapid.SampledFrom(append(kvcache.Packings(), kvcache.PackingPacked, "opaque:a", "opaque:b")).Draw(t, "packing")
	s.KernelBlock = rapid.SampledFrom([]int{16, 32}).Draw(t, "kernel block")
	s.BlockSize = s.KernelBlock * rapid.IntRange(1, 2).Draw(t, "kernel blocks")
	s.Padding = 16 * rapid.IntRange(0, 1).Draw(t, "padding")
	f.Ranks = kvcache.Ranks{Tensor: rapid.SampledFrom([]int{1, 2, 8, 16}).Draw(t, "ranks"), Pipeline: 1}
	if rapid.IntRange(0, 9).Draw(t, "stages") == 0 {
		f.Ranks.Pipeline = 2
	}
	if f.Validate() != nil { // combinations that no engine can have
		s.Packing = kvcache.PackingPacked
	}
	if f.Validate() != nil {
		s.Scales = kvcache.Scales{Kind: kvcache.ScaleNone}
	}
	if err := f.Validate(); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestAllowedIsConvertible: with every option, a pair of one model is allowed
// just if it can be converted, but for what is refused without being impossible.
// No steps means the same bytes, and some step means other bytes.
func TestAllowedIsConvertible(t *testing.T) {
	seen := map[kvcompat.Class]int{}
	rapid.Check(t, func(t *rapid.T) {
		p, d := drawPair(t)
		v := kvcompat.Check(p, d, kvcompat.Options{AllowLossy: true})
		seen[v.Class]++
		c, err := convert.New(p, d)
		if v.Allowed() && err != nil {
			t.Fatalf("%+v to %+v is allowed: %v", p, d, err)
		}
		if !v.Allowed() && err == nil && possible(p) && possible(d) {
			t.Fatalf("%+v to %+v can be converted: %v", p, d, v.Err())
		}
		if v.Allowed() && c.Identity() != (v.Class == kvcompat.Exact && len(v.Steps) == 0) {
			t.Fatalf("%+v to %+v: identity %t, but %s %v", p, d, c.Identity(), v.Class, v.Steps)
		}
		strict := kvcompat.Check(p, d, kvcompat.Options{})
		if v.Class == kvcompat.Lossy && strict.Class != kvcompat.Refused || v.Class != kvcompat.Lossy && strict.Class != v.Class {
			t.Fatalf("%s with allow_lossy, %s without", v.Class, strict.Class)
		}
	})
	t.Logf("%v", seen)
	for _, c := range []kvcompat.Class{kvcompat.Exact, kvcompat.Lossy, kvcompat.Refused} {
		if seen[c] == 0 {
			t.Errorf("no pair was %s", c)
		}
	}
}

// possible reports whether nothing is in a cache that is refused although its
// elements could be moved.
func possible(f kvcache.Fingerprint) bool {
	s := f.Storage
	return s.Packing != kvcache.PackingShuffled && (!s.Scales.Doubled || s.DType == kvcache.FP8E4M3FNUZ)
}

// TestClassIsWhatHappens: what a conversion of every code changes is what the
// class says.
func TestClassIsWhatHappens(t *testing.T) {
	for _, c := range cases.All() {
		if c.Class == kvcompat.Refused || c.Prefill.Storage.DType.Size() > 2 {
			continue
		}
		conversion, err := convert.New(c.Prefill, c.Decode)
		if err != nil {
			t.Fatal(err)
		}
		const tokens = 300
		p, err := c.Decode.PayloadFor(tokens)
		if err != nil {
			t.Fatal(err)
		}
		size := int64(c.Prefill.Storage.DType.Size())
		n, err := conversion.Fill(make([]byte, p.Bytes), tokens, 0, 0, func(_ int, at int64, out []byte) error {
			for i := range out { // every code of 8 bits, and a good many of 16
				out[i] = byte((at + int64(i)) / size)
				if size == 2 && (at+int64(i))%2 == 1 {
					out[i] = byte((at + int64(i)) / 1201)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if changed := n.Changed() > 0; changed == (c.Class == kvcompat.Exact) || c.Class == kvcompat.Guarded && n.Rounded > 0 {
			t.Errorf("%s is %s, but %+v", c.Name, c.Class, n)
		}
	}
}

// FuzzCheck: the verdict of any two fingerprints that parse is one that an
// operator and a converter can act on.
func FuzzCheck(f *testing.F) {
	for _, c := range cases.All() {
		p, errP := json.Marshal(c.Prefill)
		d, errD := json.Marshal(c.Decode)
		if errP != nil || errD != nil {
			f.Fatal(errP, errD)
		}
		f.Add(p, d, c.Options.AllowLossy, c.Options.AllowReleases)
	}
	f.Fuzz(func(t *testing.T, a, b []byte, lossy, releases bool) {
		p, err := kvcache.ParseFingerprint(a)
		if err != nil {
			return
		}
		d, err := kvcache.ParseFingerprint(b)
		if err != nil {
			return
		}
		v := kvcompat.Check(p, d, kvcompat.Options{AllowLossy: lossy, AllowReleases: releases})
		again := kvcompat.Check(p, d, kvcompat.Options{AllowLossy: lossy, AllowReleases: releases})
		if v.Conversion() != again.Conversion() || !slices.Equal(v.Reasons, again.Reasons) {
			t.Fatalf("two verdicts: %+v and %+v", v, again)
		}
		if !v.Allowed() {
			if v.Err() == nil || len(v.Reasons) == 0 {
				t.Fatalf("refused without a reason: %+v", v)
			}
			return
		}
		if _, err := convert.New(p, d); err != nil || v.Class == kvcompat.Lossy && !lossy {
			t.Fatalf("%+v: %v", v, err)
		}
	})
}

// TestInvalidIsRefused: a fingerprint that describes no cache has no verdict but refused.
func TestInvalidIsRefused(t *testing.T) {
	for _, pair := range [][2]kvcache.Fingerprint{{{}, cases.H100()}, {cases.H100(), {}}, {{}, {}}} {
		if v := kvcompat.Check(pair[0], pair[1], kvcompat.Options{}); v.Allowed() || v.Reasons[0].Attribute != "fingerprint" {
			t.Errorf("%+v", v)
		}
	}
}
