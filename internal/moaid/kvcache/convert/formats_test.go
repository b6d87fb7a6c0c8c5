package convert

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// h100 is what vLLM keeps by default on an H100 with fp8 and scales.
func h100(tensor, layers int) kvcache.Fingerprint {
	f := base(tensor)
	f.Storage = storage(16)
	f.Storage.DType, f.Storage.Order = kvcache.FP8E4M3FN, kvcache.OrderLBNHC
	f.Storage.Scales = kvcache.Scales{Kind: kvcache.ScaleTensor, Hash: "s"}
	g := kvcache.Group{Kind: kvcache.GroupFull, Heads: 8, KeyDim: 128, ValueDim: 128}
	for l := range layers {
		g.Layers = append(g.Layers, l)
	}
	f.Groups = []kvcache.Group{g}
	return f
}

// mi300x is the same on an MI300X.
func mi300x(tensor, layers int) kvcache.Fingerprint {
	f := h100(tensor, layers)
	f.Storage.DType, f.Storage.Order, f.Storage.Scales.Doubled = kvcache.FP8E4M3FNUZ, kvcache.OrderLBHNC, true
	f.Storage.BlockSize, f.Storage.KernelBlock = 64, 64
	return f
}

func with(f kvcache.Fingerprint, change func(*kvcache.Fingerprint)) kvcache.Fingerprint {
	change(&f)
	return f
}

// TestNewRefuses names what has no meaning element by element.
func TestNewRefuses(t *testing.T) {
	src := h100(2, 2)
	groups := func(g ...kvcache.Group) func(*kvcache.Fingerprint) {
		return func(f *kvcache.Fingerprint) { f.Groups = g }
	}
	full := src.Groups[0]
	sliding := full
	sliding.Kind, sliding.Window = kvcache.GroupSliding, 8
	wider := sliding
	wider.Window = 16
	latent := kvcache.Group{Kind: kvcache.GroupLatent, Layers: []int{0, 1}, Heads: 1, KeyDim: 256}
	plain := func(d kvcache.DType) func(*kvcache.Fingerprint) {
		return func(f *kvcache.Fingerprint) { f.Storage.DType, f.Storage.Scales = d, none }
	}
	odd := func(f *kvcache.Fingerprint) { f.Storage.Packing = "opaque:a" }
	for name, c := range map[string]struct {
		src, dst kvcache.Fingerprint
		want     string
	}{
		"invalid":         {kvcache.Fingerprint{}, src, "describes no cache"},
		"pipeline":        {src, with(src, func(f *kvcache.Fingerprint) { f.Ranks.Pipeline = 2 }), "pipeline"},
		"scaled to bf16":  {src, with(src, plain(kvcache.BF16)), "kind tensor"},
		"other scales":    {src, with(src, func(f *kvcache.Fingerprint) { f.Storage.Scales.Hash = "o" }), "factors are not known"},
		"head scales":     {src, with(src, func(f *kvcache.Fingerprint) { f.Storage.Scales.Kind = kvcache.ScaleHead }), "kind tensor"},
		"token scales":    {with(src, func(f *kvcache.Fingerprint) { f.Storage.Scales = kvcache.Scales{Kind: kvcache.ScaleToken} }), src, "not in the pages"},
		"e5m2":            {with(src, plain(kvcache.FP8E5M2)), with(src, plain(kvcache.BF16)), "fp8_e5m2"},
		"to e5m2":         {with(src, plain(kvcache.BF16)), with(src, plain(kvcache.FP8E5M2)), "fp8_e5m2"},
		"opaque dtype":    {with(src, plain(kvcache.NVFP4)), with(src, plain(kvcache.BF16)), "nvfp4"},
		"opaque blocks":   {with(src, odd), with(src, func(f *kvcache.Fingerprint) { odd(f); f.Storage.BlockSize = 32 }), "copied whole"},
		"opaque packing":  {with(src, odd), src, "copied whole"},
		"opaque split":    {with(src, odd), with(src, func(f *kvcache.Fingerprint) { odd(f); f.Ranks.Tensor = 4 }), "copied whole"},
		"layer missing":   {src, h100(2, 3), "no layer 2"},
		"layer more":      {h100(2, 3), src, "3 layers"},
		"heads":           {src, with(src, groups(kvcache.Group{Kind: kvcache.GroupFull, Layers: full.Layers, Heads: 4, KeyDim: 128, ValueDim: 128})), "heads"},
		"latent":          {src, with(src, groups(latent)), "heads"},
		"sliding to full": {with(src, groups(sliding)), src, "last 8 tokens"},
		"other window":    {with(src, groups(sliding)), with(src, groups(wider)), "last 8 tokens"},
	} {
		if _, err := New(c.src, c.dst); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWholePages: pages whose elements have no known positions move as they
// are, also where ranks only replicate them or groups are cut differently.
func TestWholePages(t *testing.T) {
	src := base(2)
	src.Storage = storage(16)
	src.Storage.DType, src.Storage.Packing, src.Storage.Padding = kvcache.FP8DSMLA, "opaque:ds", 16
	src.Groups = []kvcache.Group{{Kind: kvcache.GroupLatent, Layers: []int{0, 1}, Heads: 1, KeyDim: 656}}
	dst := with(src, func(f *kvcache.Fingerprint) { f.Ranks.Tensor = 1 })
	c := mustNew(t, src, dst)
	if c.Identity() {
		t.Error("other ranks are an identity")
	}
	p, err := dst.PayloadFor(40)
	if err != nil {
		t.Fatal(err)
	}
	in, out := make([]byte, p.Bytes), make([]byte, p.Bytes-7)
	for i := range in {
		in[i] = byte(i * 7)
	}
	own, err := src.PayloadFor(40)
	if err != nil {
		t.Fatal(err)
	}
	stored := [][]kvcache.Range{src.Own(own, 0), src.Own(own, 1)}
	if n, err := c.Fill(out, 40, 0, 5, source([][]byte{in, nil}, stored)); err != nil || n.Changed() != 0 || string(out) != string(in[5:p.Bytes-2]) {
		t.Errorf("the pages are not the same: %+v, %v", n, err)
	}
	if got, err := c.Available(40, stored); err != nil || kvcache.TotalBytes(got[0]) != p.Bytes {
		t.Errorf("%+v, %v", got, err)
	}
}

// FuzzNew: no pair of fingerprints that parse, and no range of their payloads,
// brings the converter down.
func FuzzNew(f *testing.F) {
	add := func(a, b kvcache.Fingerprint, tokens, rank int, offset int64, length uint16) {
		x, errX := json.Marshal(a)
		y, errY := json.Marshal(b)
		if errX != nil || errY != nil {
			f.Fatal(errX, errY)
		}
		f.Add(x, y, tokens, rank, offset, length)
	}
	add(h100(2, 2), mi300x(1, 2), 100, 0, int64(70), uint16(9000))
	add(mi300x(1, 1), h100(4, 1), 17, 3, int64(0), uint16(1))
	add(h100(1, 1), with(h100(1, 1), func(f *kvcache.Fingerprint) {
		f.Storage.Packing, f.Storage.Order = kvcache.PackingShuffled, kvcache.OrderLBHNC
	}), 31, 0, int64(5), uint16(500))
	f.Fuzz(func(t *testing.T, a, b []byte, tokens, rank int, offset int64, length uint16) {
		src, err := kvcache.ParseFingerprint(a)
		if err != nil {
			return
		}
		dst, err := kvcache.ParseFingerprint(b)
		if err != nil {
			return
		}
		c, err := New(src, dst)
		if err != nil {
			return
		}
		for g := range dst.Groups {
			if dst.PageBytes(g) > 1<<18 {
				return
			}
		}
		for g := range src.Groups {
			if src.PageBytes(g) > 1<<18 {
				return
			}
		}
		read := func(q int, at int64, out []byte) error {
			p, err := src.PayloadFor(tokens)
			if err != nil || q < 0 || q >= src.Ranks.Tensor || at < 0 || at+int64(len(out)) > p.Bytes {
				t.Fatalf("%d bytes from %d of rank %d were read: %v", len(out), at, q, err)
			}
			for i := range out {
				out[i] = byte(at) + byte(i)
			}
			return nil
		}
		if _, err := c.Fill(make([]byte, length), tokens, rank, offset, read); err != nil {
			return
		}
		stored := make([][]kvcache.Range, src.Ranks.Tensor)
		for q := range stored {
			stored[q] = []kvcache.Range{{Offset: offset, Length: int64(length)}, {Length: 1 << 40}}
		}
		if _, err := c.Available(tokens, stored); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkFill(b *testing.B) {
	bf := func(f kvcache.Fingerprint, change func(*kvcache.Storage)) kvcache.Fingerprint {
		f.Storage.DType, f.Storage.Scales = kvcache.BF16, none
		change(&f.Storage)
		return f
	}
	block := func(n int) func(*kvcache.Storage) {
		return func(s *kvcache.Storage) { s.BlockSize, s.KernelBlock = n, n }
	}
	packing := func(p kvcache.Packing) func(*kvcache.Storage) {
		return func(s *kvcache.Storage) { block(64)(s); s.Order, s.Packing = kvcache.OrderLBHNC, p }
	}
	fp32 := func(s *kvcache.Storage) { block(64)(s); s.DType = kvcache.FP32 }
	for _, c := range []struct {
		name     string
		src, dst kvcache.Fingerprint
	}{
		{"h100 to mi300x", h100(8, 8), mi300x(8, 8)},
		{"h100 4 ranks to mi300x 2 ranks", h100(4, 8), mi300x(2, 8)},
		{"bf16 blocks 16 to 64", bf(h100(1, 8), block(16)), bf(h100(1, 8), block(64))},
		{"bf16 token-major to head-major", bf(h100(1, 8), block(64)), bf(mi300x(1, 8), block(64))},
		{"bf16 packed to x_packed", bf(h100(1, 8), block(64)), bf(h100(1, 8), packing(kvcache.PackingX))},
		{"bf16 cpu_amx to cpu_vec", bf(h100(1, 8), packing(kvcache.PackingCPUAMX)), bf(h100(1, 8), packing(kvcache.PackingCPUVec))},
		{"fp32 to bf16 cpu_amx", bf(h100(1, 8), fp32), bf(h100(1, 8), packing(kvcache.PackingCPUAMX))},
	} {
		b.Run(strings.ReplaceAll(c.name, " ", "-"), func(b *testing.B) {
			conv := mustNew(b, c.src, c.dst)
			p, err := c.src.PayloadFor(4096)
			if err != nil {
				b.Fatal(err)
			}
			payload := make([]byte, p.Bytes)
			for i := range payload {
				payload[i] = byte(i * 31)
			}
			src := func(_ int, offset int64, out []byte) error {
				if n := copy(out, payload[offset:]); n != len(out) {
					return fmt.Errorf("%d bytes", n)
				}
				return nil
			}
			out := make([]byte, 1<<20)
			b.SetBytes(int64(len(out)))
			for i := 0; b.Loop(); i++ {
				if _, err := conv.Fill(out, 4096, 0, int64(i%2)<<20, src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A chunk of a page that is much larger costs what the chunk is, not the page.
func TestFillReadsWhatIsAskedFor(t *testing.T) {
	src := h100(1, 1)
	dst := with(src, func(f *kvcache.Fingerprint) {
		f.Storage.BlockSize, f.Storage.KernelBlock, f.Storage.Padding = 2048, 2048, 16
	})
	c := mustNew(t, src, dst)
	const asked = 4096
	read := 0
	_, err := c.Fill(make([]byte, asked), 2048, 0, 100*asked, func(_ int, _ int64, out []byte) error {
		read += len(out)
		return nil
	})
	if limit := asked + 2*int(src.PageBytes(0)); err != nil || read < asked || read > limit {
		t.Errorf("%d bytes were read for %d, not more than %d are needed: %v", read, asked, limit, err)
	}
}
