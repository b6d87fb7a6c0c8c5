package refmodel

import (
	"math"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

func TestCheckNamesTheFlag(t *testing.T) {
	for name, c := range map[string]struct {
		model  string
		change func(*Format)
		want   string // how the error begins; "" for none
	}{
		"default":                      {"moai/seeded", func(*Format) {}, ""},
		"dtype":                        {"moai/seeded", func(f *Format) { f.DType = kvcache.FP8E5M2 }, "--kv-dtype fp8_e5m2: "},
		"scales":                       {"moai/seeded", func(f *Format) { f.DType, f.Scales = kvcache.FP8E4M3FN, kvcache.ScaleToken }, "--kv-scales token: "},
		"scales of bf16":               {"moai/seeded", func(f *Format) { f.Scales = kvcache.ScaleTensor }, "--kv-scales tensor: "},
		"scales of fp8":                {"moai/seeded", func(f *Format) { f.DType, f.Scales = kvcache.FP8E4M3FNUZ, kvcache.ScaleHead }, ""},
		"order":                        {"moai/seeded", func(f *Format) { f.Order = "LBHCN" }, "--kv-order LBHCN: "},
		"packing":                      {"moai/seeded", func(f *Format) { f.Packing = "opaque:x" }, "--kv-packing opaque:x: "},
		"packing of another order":     {"moai/seeded", func(f *Format) { f.Packing, f.Order = kvcache.PackingX, kvcache.OrderBLNHC }, "--kv-packing x_packed: "},
		"apart with tokens first":      {"moai/seeded", func(f *Format) { f.Packing, f.Order = kvcache.PackingApart, kvcache.OrderBLNHC }, ""},
		"block size":                   {"moai/seeded", func(f *Format) { f.BlockSize = 0 }, "--block-size 0: "},
		"kernel block":                 {"moai/seeded", func(f *Format) { f.KernelBlock = 48 }, "--kernel-block 48: "},
		"padding":                      {"moai/seeded", func(f *Format) { f.Padding = 8 }, "--kv-padding 8: "},
		"no ranks":                     {"moai/seeded", func(f *Format) { f.Tensor = 0 }, "--tensor-parallel 0: "},
		"three ranks":                  {"moai/seeded", func(f *Format) { f.Tensor = 3 }, "--tensor-parallel 3: "},
		"more ranks than query heads":  {"moai/seeded", func(f *Format) { f.Tensor = 8 }, "--tensor-parallel 8: "},
		"two ranks a KV head":          {"moai/seeded", func(f *Format) { f.Tensor = 4 }, ""},
		"eight ranks":                  {"moai/seeded-heads", func(f *Format) { f.Tensor = 8 }, ""},
		"ranks of latent vectors":      {"moai/latent", func(f *Format) { f.Tensor = 4 }, ""},
		"latent vectors apart":         {"moai/latent", func(f *Format) { f.Packing = kvcache.PackingApart }, "--kv-packing apart: "},
		"shuffled, short kernel block": {"moai/seeded", func(f *Format) { f.Packing, f.KernelBlock = kvcache.PackingShuffled, 4 }, "--kernel-block 4: "},
		"shuffled, short block":        {"moai/seeded", func(f *Format) { f.Packing, f.BlockSize = kvcache.PackingShuffled, 4 }, "--block-size 4: "},
		"AMX, short block":             {"moai/seeded", func(f *Format) { f.Packing, f.BlockSize = kvcache.PackingCPUAMX, 24 }, "--block-size 24: "},
		"AMX":                          {"moai/seeded-heads", func(f *Format) { f.Packing = kvcache.PackingCPUAMX }, ""},
	} {
		m, err := Lookup(c.model)
		if err != nil {
			t.Fatal(err)
		}
		f := DefaultFormat()
		c.change(&f)
		err = f.Check(m)
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if _, ferr := m.Fingerprint(1, f); (ferr == nil) != (err == nil) {
			t.Errorf("%s: the check says %v, the fingerprint %v", name, err, ferr)
		}
	}
	m := Model{Name: "odd", Config: Config{Layers: 1, Hidden: 8, Heads: 1, KVHeads: 1, HeadDim: 8, FFN: 8, Windows: []int{0}}}
	f := DefaultFormat()
	f.DType, f.Packing = kvcache.FP8E4M3FN, kvcache.PackingX
	if err := f.Check(m); err == nil || !strings.HasPrefix(err.Error(), "--kv-packing x_packed: ") {
		t.Errorf("heads of 8 bytes in sixteens: %v", err)
	}
	f.Packing = kvcache.PackingCPUAMX
	if err := f.Check(m); err == nil || !strings.HasPrefix(err.Error(), "--kv-packing cpu_amx: ") {
		t.Errorf("heads of 8 elements in sixteens: %v", err)
	}
}

// Every format that passes the check describes a cache, for every model.
func TestCheckAgreesWithTheFingerprint(t *testing.T) {
	for _, name := range Names() {
		m, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, d := range DTypes() {
			for _, o := range kvcache.Orders() {
				for _, p := range kvcache.Packings() {
					for _, block := range []int{1, 16, 24, 64} {
						for _, tensor := range []int{1, 2, 4, 8} {
							f := Format{DType: d, Scales: kvcache.ScaleNone, Order: o, Packing: p, BlockSize: block, Tensor: tensor}
							if f.Check(m) != nil {
								continue
							}
							n++
							if _, err := m.Fingerprint(1, f); err != nil {
								t.Errorf("%s, %+v: %v", name, f, err)
							}
						}
					}
				}
			}
		}
		for _, preset := range FormatNames() {
			f, err := LookupFormat(preset)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Check(m); err != nil {
				t.Errorf("%s as %s: %v", name, preset, err)
			}
		}
		if n == 0 {
			t.Errorf("%s can be kept in no format", name)
		}
	}
}

func TestFactors(t *testing.T) {
	m, err := Lookup("moai/reciting")
	if err != nil {
		t.Fatal(err)
	}
	tensor, head := m.Factors(1, kvcache.ScaleTensor), m.Factors(1, kvcache.ScaleHead)
	for l := range m.Config.Layers {
		for part := kvcache.Key; part <= kvcache.Value; part++ {
			if len(tensor[l][part]) != 1 || len(head[l][part]) != m.Config.KVHeads {
				t.Fatalf("layer %d has %d and %d factors", l, len(tensor[l][part]), len(head[l][part]))
			}
			if tensor.Of(l, part, 0) != tensor.Of(l, part, 1) {
				t.Errorf("layer %d: heads have factors of their own", l)
			}
			for h := range m.Config.KVHeads {
				if x := head.Of(l, part, h); x < factorUnit || x >= 2*factorUnit || math.Float32bits(x)&0x7fffff == 0 && x != factorUnit {
					t.Errorf("layer %d part %d head %d: %v", l, part, h, x)
				}
			}
		}
	}
	hashes := map[string]string{}
	for name, f := range map[string]Factors{"tensor": tensor, "head": head, "other seed": m.Factors(2, kvcache.ScaleTensor)} {
		if other, ok := hashes[f.Hash()]; ok {
			t.Errorf("%s and %s have one hash", name, other)
		}
		hashes[f.Hash()] = name
	}
	if m.Factors(1, kvcache.ScaleNone).Of(0, kvcache.Key, 0) != 1 {
		t.Error("no scales are not one")
	}
	latent, err := Lookup("moai/latent")
	if err != nil {
		t.Fatal(err)
	}
	if f := latent.Factors(1, kvcache.ScaleTensor); len(f) != 4 || len(f[0][kvcache.Key]) != 1 || len(f[0][kvcache.Value]) != 0 {
		t.Errorf("factors of latent vectors: %v", f)
	}
	// The hash is over the factors as they lie in a checkpoint.
	if got := (Factors{{{1}, {2}}}).Hash(); got != "b9c80b5adeca450753a16950c3cc655d271f7bef7a485bc83f112b72fef21d37" {
		t.Errorf("the hash of 1 and 2 as little-endian float32 is %s", got)
	}
}
