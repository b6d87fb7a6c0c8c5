package engines

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

func fingerprint(t *testing.T, s Spec) kvcache.Fingerprint {
	t.Helper()
	if ps := (reference{}).Check(s); len(ps) > 0 {
		t.Fatal(ps)
	}
	f, err := reference{}.Fingerprint(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The plan's fingerprint is the engine's own, and the arguments say each part of it.
func TestFormats(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*Spec)
		want   func(*kvcache.Storage)
		args   []string
	}{
		{"nothing said", nil, func(*kvcache.Storage) {}, []string{"--preset=default", "--kv-dtype=bf16", "--kv-scales=none", "--kv-order=LBHNC", "--kv-packing=packed", "--block-size=64", "--kernel-block=64", "--kv-padding=0", "--tensor-parallel=1", "--data-parallel=1"}},
		{"h100", func(s *Spec) { s.Preset = "h100" }, func(st *kvcache.Storage) {
			st.DType, st.Order, st.BlockSize, st.KernelBlock = kvcache.FP8E4M3FN, kvcache.OrderLBNHC, 16, 16
			st.Scales.Kind = kvcache.ScaleTensor
		}, []string{"--preset=h100", "--kv-dtype=fp8_e4m3fn", "--kv-scales=tensor", "--kv-order=LBNHC", "--block-size=16"}},
		{"mi300x", func(s *Spec) { s.Preset = "mi300x" }, func(st *kvcache.Storage) {
			st.DType, st.Scales = kvcache.FP8E4M3FNUZ, kvcache.Scales{Kind: kvcache.ScaleTensor, Doubled: true}
		}, []string{"--kv-dtype=fp8_e4m3fnuz", "--block-size=64"}},
		{"fp8 of the vendor", func(s *Spec) { s.Preset, s.KVCache.DType = "mi300x", "fp8" }, func(st *kvcache.Storage) {
			st.DType, st.Scales = kvcache.FP8E4M3FNUZ, kvcache.Scales{Kind: kvcache.ScaleTensor, Doubled: true}
		}, nil},
		{"fp8 without a vendor", func(s *Spec) { s.KVCache.DType = "fp8" }, func(st *kvcache.Storage) { st.DType = kvcache.FP8E4M3FN }, []string{"--kv-scales=none"}},
		{"another dtype has no scales", func(s *Spec) { s.Preset, s.KVCache.DType = "h100", "fp16" }, func(st *kvcache.Storage) {
			st.DType, st.Order, st.BlockSize, st.KernelBlock = kvcache.FP16, kvcache.OrderLBNHC, 16, 16
		}, []string{"--kv-scales=none"}},
		{"attributes go first", func(s *Spec) {
			s.Preset = "h100"
			s.KVCache = KVCache{BlockSize: 128, Layout: "LBHNC"}
			s.Reference = Reference{Packing: "shuffled", Scales: "head", KernelBlockSize: 16, Padding: 32}
		}, func(st *kvcache.Storage) {
			st.DType, st.Packing, st.BlockSize, st.KernelBlock, st.Padding = kvcache.FP8E4M3FN, kvcache.PackingShuffled, 128, 16, 32
			st.Scales.Kind = kvcache.ScaleHead
		}, []string{"--kv-packing=shuffled", "--kernel-block=16", "--kv-padding=32", "--kv-scales=head", "--block-size=128"}},
	} {
		s := spec(c.change)
		want := kvcache.Storage{DType: kvcache.BF16, Scales: kvcache.Scales{Kind: kvcache.ScaleNone}, Order: kvcache.OrderLBHNC, Packing: kvcache.PackingPacked, BlockSize: 64, KernelBlock: 64}
		c.want(&want)
		got := fingerprint(t, s).Storage
		if (got.Scales.Hash != "") != (got.Scales.Kind != kvcache.ScaleNone) {
			t.Errorf("%s: scales %+v", c.name, got.Scales)
		}
		got.Scales.Hash = ""
		if got != want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, want)
		}
		args := reference{}.Launch(s, PlaceFor("n", s.Name)).Args
		for _, a := range c.args {
			if !slices.Contains(args, a) {
				t.Errorf("%s: %q is not in %q", c.name, a, args)
			}
		}
	}
}

func TestSharedMeansSame(t *testing.T) {
	t.Parallel()
	verdict := func(p, d Spec) kvcompat.Verdict {
		return kvcompat.Check(fingerprint(t, p), fingerprint(t, d), kvcompat.Options{})
	}
	base := spec(nil)
	if v := verdict(base, spec(func(s *Spec) { s.Role, s.Name, s.Parallel.Data, s.GPUs = RoleDecode, "decode-0", 2, []int{4, 5} })); v.Class != kvcompat.Exact || len(v.Steps) > 0 {
		t.Errorf("got %+v", v)
	}
	if v := verdict(base, spec(func(s *Spec) { s.Model.ID = "moai/seeded-wide" })); v.Allowed() {
		t.Errorf("another model is compatible: %+v", v)
	}
	other := func(s *Spec) { s.Reference.WeightsSeed = ptr(uint64(7)) }
	if v := verdict(base, spec(other)); v.Allowed() {
		t.Error("other weights are compatible")
	}
	claims := spec(func(s *Spec) { other(s); s.Reference.ClaimFingerprintOf = ptr(uint64(refmodel.DefaultSeed)) })
	if v := verdict(base, claims); !v.Allowed() {
		t.Error(v.Err())
	}
}

// Whatever is asked for is either refused with a reason at an attribute, or gives a
// valid fingerprint of exactly this format.
func TestEveryFormatIsRefusedOrPlanned(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := spec(func(s *Spec) {
			s.Model.ID = rapid.SampledFrom(refmodel.Names()).Draw(t, "model")
			s.Preset = rapid.SampledFrom(append(refmodel.FormatNames(), "")).Draw(t, "preset")
			s.KVCache.DType = rapid.SampledFrom(append(referenceDTypes, "")).Draw(t, "dtype")
			s.KVCache.BlockSize = rapid.SampledFrom(append(referenceBlockSizes, 0)).Draw(t, "block size")
			s.KVCache.Layout = rapid.SampledFrom(append(names(kvcache.Orders()), "")).Draw(t, "layout")
			s.Reference.Packing = rapid.SampledFrom(append(names(kvcache.Packings()), "")).Draw(t, "packing")
			s.Reference.Scales = rapid.SampledFrom(append(referenceScales, "")).Draw(t, "scales")
			s.Reference.KernelBlockSize = rapid.SampledFrom([]int{0, 4, 16, 64}).Draw(t, "kernel block")
			s.Reference.Padding = rapid.SampledFrom([]int{0, 16, 40}).Draw(t, "padding")
			s.Parallel.Tensor = rapid.SampledFrom(referenceTensors).Draw(t, "tensor")
			s.Parallel.Data = rapid.IntRange(1, maxReferenceData).Draw(t, "data")
		})
		ps := reference{}.Check(s)
		f, err := reference{}.Fingerprint(s)
		if len(ps) == 0 {
			if err != nil {
				t.Fatal(err)
			}
			if f.Storage.DType != dtypeOf(s) || f.Storage.BlockSize != s.KVCache.BlockSize || f.Ranks.Tensor != s.Parallel.Tensor {
				t.Fatalf("%+v has %+v", s, f)
			}
			return
		}
		for _, p := range ps {
			if p.Attribute == "kv_cache" || p.Detail == "" {
				t.Fatalf("%+v", p)
			}
		}
	})
}
