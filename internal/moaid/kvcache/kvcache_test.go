package kvcache

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func small() Fingerprint {
	return Fingerprint{ModelHash: "m", Engine: "e/0", DType: BF16, Layout: LayoutLBHNC, BlockSize: 16, KVHeads: 8, HeadDim: 64, TensorSize: 2,
		Groups: []Group{{Kind: GroupFull, Layers: []int{0, 2}}, {Kind: GroupSliding, Window: 32, Layers: []int{1, 3}}}}
}

func TestPageBytes(t *testing.T) {
	f := small()
	if got := f.PageBytes(); got != 16*4*64*2*2 {
		t.Errorf("a page has %d bytes", got)
	}
	f.DType, f.TensorSize = FP8E4M3FN, 1
	if got := f.PageBytes(); got != 16*8*64*2 {
		t.Errorf("a page has %d bytes", got)
	}
}

func TestPayloadTable(t *testing.T) {
	f := small()
	block := f.PageBytes() * 2
	for _, c := range []struct {
		tokens             int
		full, first, slide int // blocks, first sliding block, sliding blocks
	}{
		{1, 1, 0, 1}, {16, 1, 0, 1}, {17, 2, 0, 2}, {32, 2, 0, 2}, {33, 3, 0, 3}, {47, 3, 0, 3}, {48, 3, 1, 2}, {49, 4, 1, 3}, {1000, 63, 60, 3},
	} {
		p, err := f.PayloadFor(c.tokens)
		if err != nil {
			t.Fatal(err)
		}
		full, slide := p.Sections[0], p.Sections[1]
		if full.Blocks != c.full || full.FirstBlock != 0 || slide.FirstBlock != c.first || slide.Blocks != c.slide || p.Bytes != int64(c.full+c.slide)*block {
			t.Errorf("%d tokens: %+v", c.tokens, p)
		}
	}
	for _, n := range []int{0, -1, MaxTokens + 1} {
		if _, err := f.PayloadFor(n); err == nil {
			t.Errorf("%d tokens were accepted", n)
		}
	}
}

func drawFingerprint(t *rapid.T) Fingerprint {
	f := Fingerprint{ModelHash: rapid.StringN(1, 20, 128).Draw(t, "model"), Engine: "e/0",
		DType:     rapid.SampledFrom([]DType{BF16, FP16, FP32, FP8E4M3FN, FP8E4M3FNZ, FP8E5M2}).Draw(t, "dtype"),
		Layout:    rapid.SampledFrom([]Layout{LayoutLBHNC, LayoutLBNHC}).Draw(t, "layout"),
		BlockSize: rapid.IntRange(1, 64).Draw(t, "block"), HeadDim: rapid.IntRange(1, 256).Draw(t, "dim"), TensorSize: rapid.IntRange(1, 8).Draw(t, "tp")}
	f.KVHeads = f.TensorSize * rapid.IntRange(1, 8).Draw(t, "heads")
	layer := 0
	layers := func() []int {
		var out []int
		for range rapid.IntRange(1, 5).Draw(t, "layers") {
			out = append(out, layer)
			layer++
		}
		return out
	}
	for range rapid.IntRange(0, 2).Draw(t, "full") {
		f.Groups = append(f.Groups, Group{Kind: GroupFull, Layers: layers()})
	}
	for range rapid.IntRange(0, 2).Draw(t, "sliding") {
		f.Groups = append(f.Groups, Group{Kind: GroupSliding, Window: rapid.IntRange(1, 200).Draw(t, "window"), Layers: layers()})
	}
	if len(f.Groups) == 0 {
		f.Groups = []Group{{Kind: GroupFull, Layers: layers()}}
	}
	return f
}

// TestPayloadProperties: sections tile the payload; every token that the next
// position attends to is in it; needed ranges shrink as the local prefix grows
// and never leave out what a sliding layer or a partial block needs.
func TestPayloadProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFingerprint(t)
		if err := f.Validate(); err != nil {
			t.Fatalf("%+v: %v", f, err)
		}
		tokens := rapid.IntRange(1, 2000).Draw(t, "tokens")
		p, err := f.PayloadFor(tokens)
		if err != nil {
			t.Fatal(err)
		}
		at := int64(0)
		for i, s := range p.Sections {
			if s.Group != i || s.Offset != at || s.Blocks < 1 {
				t.Fatalf("section %d of %+v", i, p)
			}
			at += s.Bytes()
			lo := 0
			if g := f.Groups[i]; g.Kind == GroupSliding {
				lo = max(0, tokens-g.Window)
			}
			if s.FirstBlock*f.BlockSize > lo || (s.FirstBlock+s.Blocks)*f.BlockSize < tokens || (s.FirstBlock+1)*f.BlockSize <= lo {
				t.Fatalf("tokens %d to %d are not just covered by %+v", lo, tokens, s)
			}
		}
		if at != p.Bytes {
			t.Fatalf("sections have %d bytes, the payload %d", at, p.Bytes)
		}
		from := rapid.IntRange(0, tokens).Draw(t, "from")
		need := f.Needed(p, from)
		last := int64(-1)
		for _, r := range need {
			if r.Length < 1 || r.Offset <= last || r.Offset+r.Length > p.Bytes {
				t.Fatalf("needed %+v of %d bytes", need, p.Bytes)
			}
			last = r.Offset + r.Length
		}
		want := p.Bytes
		for i, s := range p.Sections {
			if f.Groups[i].Kind == GroupFull {
				want -= int64(from/f.BlockSize) * s.BlockBytes
			}
		}
		if got := TotalBytes(need); got != want {
			t.Fatalf("%d bytes needed, want %d", got, want)
		}
		if TotalBytes(f.Needed(p, 0)) != p.Bytes {
			t.Fatal("without a prefix all is needed")
		}
	})
}

func TestFingerprintRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFingerprint(t)
		b, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		g, err := ParseFingerprint(b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if g.Hash() != f.Hash() {
			t.Fatalf("%s has another hash after a round trip", b)
		}
	})
}

func TestParseFingerprintRefuses(t *testing.T) {
	f := small()
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	good := string(b)
	for name, s := range map[string]string{
		"unknown field":   strings.Replace(good, "{", `{"rope":1,`, 1),
		"data after":      good + "{}",
		"cut":             good[:len(good)-1],
		"version":         strings.Replace(good, `"version":0`, `"version":1`, 1),
		"no model":        strings.Replace(good, `"model_hash":"m"`, `"model_hash":""`, 1),
		"dtype":           strings.Replace(good, "bf16", "bf17", 1),
		"layout":          strings.Replace(good, "LBHNC", "BLHNC", 1),
		"block size":      strings.Replace(good, `"block_size":16`, `"block_size":0`, 1),
		"heads":           strings.Replace(good, `"kv_heads":8`, `"kv_heads":7`, 1),
		"window":          strings.Replace(good, `"window":32,`, "", 1),
		"layer twice":     strings.Replace(good, "[1,3]", "[1,2]", 1),
		"layers descend":  strings.Replace(good, "[0,2]", "[2,0]", 1),
		"full has window": strings.Replace(good, `"kind":"full"`, `"kind":"full","window":3`, 1),
		"full after":      strings.Replace(strings.Replace(good, `"kind":"full"`, `"kind":"sliding","window":9`, 1), `"kind":"sliding","window":32`, `"kind":"full"`, 1),
	} {
		if s == good {
			t.Fatalf("%s: the case changes nothing", name)
		}
		if _, err := ParseFingerprint([]byte(s)); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// TestHashSeesEveryField: no two different fingerprints look equal.
func TestHashSeesEveryField(t *testing.T) {
	base := small()
	seen := map[string]string{base.Hash(): "base"}
	for name, change := range map[string]func(*Fingerprint){
		"model": func(f *Fingerprint) { f.ModelHash = "n" }, "engine": func(f *Fingerprint) { f.Engine = "e/1" },
		"dtype": func(f *Fingerprint) { f.DType = FP16 }, "layout": func(f *Fingerprint) { f.Layout = LayoutLBNHC },
		"block": func(f *Fingerprint) { f.BlockSize = 32 }, "heads": func(f *Fingerprint) { f.KVHeads = 16 },
		"dim": func(f *Fingerprint) { f.HeadDim = 128 }, "tp": func(f *Fingerprint) { f.TensorSize = 4 },
		"window": func(f *Fingerprint) { f.Groups[1].Window = 33 }, "layers": func(f *Fingerprint) { f.Groups[1].Layers = []int{1, 5} },
	} {
		f := small()
		change(&f)
		if other, ok := seen[f.Hash()]; ok {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[f.Hash()] = name
	}
}

func FuzzParseFingerprint(f *testing.F) {
	b, err := json.Marshal(small())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fp, err := ParseFingerprint(b)
		if err != nil {
			return
		}
		if fp.PageBytes() < 1 {
			t.Fatalf("a page of %d bytes", fp.PageBytes())
		}
		if _, err := fp.PayloadFor(1); err != nil {
			t.Fatal(err)
		}
		p, err := fp.PayloadFor(MaxTokens)
		if err != nil || p.Bytes < 1 {
			t.Fatalf("%d bytes for the longest prompt: %v", p.Bytes, err)
		}
		again, err := json.Marshal(fp)
		if err != nil {
			t.Fatal(err)
		}
		if g, err := ParseFingerprint(again); err != nil || g.Hash() != fp.Hash() {
			t.Fatalf("%s: %v", again, err)
		}
	})
}

func TestTokenHash(t *testing.T) {
	// sha256 of 01000000 02000000
	if got := TokenHash([]int{1, 2}); got != "34fb5c825de7ca4aea6e712f19d439c1da0c92c37b423936c5f618545ca4fa1f" {
		t.Errorf("%s", got)
	}
	seen := map[string]bool{}
	for _, ids := range [][]int{{}, {1}, {1, 2}, {2, 1}, {1, 2, 0}, {256}, {1, 0}} {
		if h := TokenHash(ids); seen[h] {
			t.Errorf("%v collides", ids)
		} else {
			seen[h] = true
		}
	}
}
