package kvcache

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func small() Fingerprint {
	return Fingerprint{Version: Version, Model: Model{Config: "c", Weights: "w", Tokenizer: "t"}, Engine: Engine{Family: "e", Release: "0"},
		Storage: Storage{DType: BF16, Scales: Scales{Kind: ScaleNone}, Order: OrderLBHNC, Packing: PackingPacked, BlockSize: 16, KernelBlock: 16},
		Groups:  []Group{{Kind: GroupFull, Layers: []int{0, 2}, Heads: 8, KeyDim: 64, ValueDim: 64}, {Kind: GroupSliding, Window: 32, Layers: []int{1, 3}, Heads: 8, KeyDim: 64, ValueDim: 64}},
		Ranks:   Ranks{Tensor: 2, Pipeline: 1}}
}

func TestPageBytes(t *testing.T) {
	f := small()
	if got := f.PageBytes(0); got != 16*4*64*2*2 {
		t.Errorf("a page has %d bytes", got)
	}
	f.Storage.DType, f.Ranks.Tensor = FP8E4M3FN, 1
	if got := f.PageBytes(0); got != 16*8*64*2 {
		t.Errorf("a page has %d bytes", got)
	}
}

func TestPayloadTable(t *testing.T) {
	f := small()
	block := f.PageBytes(0) * 2
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
	f := small()
	f.Model.Weights = rapid.StringN(1, 20, 128).Draw(t, "model")
	f.Storage.DType = rapid.SampledFrom(DTypes()).Draw(t, "dtype")
	f.Storage.Order = rapid.SampledFrom(Orders()).Draw(t, "order")
	f.Storage.KernelBlock = rapid.IntRange(1, 64).Draw(t, "kernel block")
	f.Storage.BlockSize = f.Storage.KernelBlock * rapid.IntRange(1, 4).Draw(t, "kernel blocks")
	f.Storage.Padding = 16 * rapid.IntRange(0, 2).Draw(t, "padding")
	f.Ranks.Tensor = rapid.IntRange(1, 8).Draw(t, "tp")
	f.Groups = nil
	group := func(g Group) Group {
		g.Heads = f.Ranks.Tensor * rapid.IntRange(1, 4).Draw(t, "heads")
		if rapid.Bool().Draw(t, "few heads") {
			g.Heads = 1
		}
		g.KeyDim, g.ValueDim = rapid.IntRange(1, 96).Draw(t, "key dim"), rapid.IntRange(1, 96).Draw(t, "value dim")
		return g
	}
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
		f.Groups = append(f.Groups, group(Group{Kind: GroupFull, Layers: layers()}))
	}
	for range rapid.IntRange(0, 2).Draw(t, "sliding") {
		f.Groups = append(f.Groups, group(Group{Kind: GroupSliding, Window: rapid.IntRange(1, 200).Draw(t, "window"), Layers: layers()}))
	}
	if len(f.Groups) == 0 {
		f.Groups = []Group{{Kind: GroupLatent, Layers: layers(), Heads: 1, KeyDim: rapid.IntRange(1, 600).Draw(t, "latent")}}
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
			if s.FirstBlock*f.Storage.BlockSize > lo || (s.FirstBlock+s.Blocks)*f.Storage.BlockSize < tokens || (s.FirstBlock+1)*f.Storage.BlockSize <= lo {
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
			if f.Groups[i].Kind != GroupSliding {
				want -= int64(from/f.Storage.BlockSize) * s.BlockBytes
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
		"version":         strings.Replace(good, `"version":1`, `"version":0`, 1),
		"no model":        strings.Replace(good, `"weights":"w"`, `"weights":""`, 1),
		"dtype":           strings.Replace(good, "bf16", "bf17", 1),
		"layout":          strings.Replace(good, "LBHNC", "BLHCN", 1),
		"block size":      strings.Replace(good, `"block_size":16`, `"block_size":0`, 1),
		"heads":           strings.Replace(good, `"heads":8`, `"heads":7`, 1),
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
		"config": func(f *Fingerprint) { f.Model.Config = "n" }, "weights": func(f *Fingerprint) { f.Model.Weights = "n" },
		"tokenizer": func(f *Fingerprint) { f.Model.Tokenizer = "n" }, "template": func(f *Fingerprint) { f.Model.ChatTemplate = "n" },
		"family": func(f *Fingerprint) { f.Engine.Family = "n" }, "release": func(f *Fingerprint) { f.Engine.Release = "n" }, "attention": func(f *Fingerprint) { f.Engine.Attention = "n" },
		"features": func(f *Fingerprint) { f.Features = []string{"n"} }, "dtype": func(f *Fingerprint) { f.Storage.DType = FP16 },
		"scales": func(f *Fingerprint) { f.Storage.Scales.Kind = ScaleHead }, "doubled": func(f *Fingerprint) { f.Storage.Scales.Doubled = true },
		"scale hash": func(f *Fingerprint) { f.Storage.Scales.Hash = "n" }, "order": func(f *Fingerprint) { f.Storage.Order = OrderLBNHC },
		"packing": func(f *Fingerprint) { f.Storage.Packing = PackingApart }, "block": func(f *Fingerprint) { f.Storage.BlockSize = 32 },
		"kernel block": func(f *Fingerprint) { f.Storage.KernelBlock = 8 }, "padding": func(f *Fingerprint) { f.Storage.Padding = 16 },
		"heads": func(f *Fingerprint) { f.Groups[0].Heads = 16 }, "key dim": func(f *Fingerprint) { f.Groups[0].KeyDim = 128 }, "value dim": func(f *Fingerprint) { f.Groups[0].ValueDim = 128 },
		"tp": func(f *Fingerprint) { f.Ranks.Tensor = 4 }, "pp": func(f *Fingerprint) { f.Ranks.Pipeline = 2 },
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
		if fp.PageBytes(0) < 1 {
			t.Fatalf("a page of %d bytes", fp.PageBytes(0))
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

// TestAtIsABijection: in every packing, order and division, the elements of a
// page are at different positions and fill it but for its padding.
func TestAtIsABijection(t *testing.T) {
	for _, packing := range Packings() {
		t.Run(string(packing), func(t *testing.T) {
			tried := 0
			for _, order := range Orders() {
				for _, dtype := range []DType{BF16, FP32, FP8E4M3FN} {
					for _, blocks := range []int{1, 3} {
						f := small()
						f.Storage.DType, f.Storage.Order, f.Storage.Packing = dtype, order, packing
						f.Storage.KernelBlock, f.Storage.BlockSize, f.Storage.Padding = 32, 32*blocks, 16
						f.Groups[0].KeyDim, f.Groups[0].ValueDim = 48, 32
						f.Groups[1] = f.Groups[0]
						f.Groups[1].Layers = []int{1, 3}
						for _, f.Ranks.Tensor = range []int{1, 4, 16} {
							if f.Validate() == nil {
								tried++
								checkBijection(t, &f)
							}
						}
					}
				}
			}
			if tried < 3*3*2*3 { // the orders with one head after the other have every packing
				t.Errorf("only %d formats were tried", tried)
			}
		})
	}
}

func checkBijection(t *testing.T, f *Fingerprint) {
	t.Helper()
	g, size := f.Groups[0], int64(f.Storage.DType.Size())
	seen := make([]bool, f.PageBytes(0)/size)
	n := 0
	for head := range f.RankHeads(0) {
		for token := range f.Storage.BlockSize {
			for d := range g.KeyDim + g.ValueDim {
				part, dim := Key, d
				if d >= g.KeyDim {
					part, dim = Value, d-g.KeyDim
				}
				at := f.At(0, head, token, part, dim)
				if at%size != 0 || at+size > f.PageBytes(0)-int64(f.Storage.Padding) || seen[at/size] {
					t.Fatalf("%+v: element %d %d %d %d is at %d", f.Storage, head, token, part, dim, at)
				}
				seen[at/size] = true
				n++
			}
		}
	}
	if int64(n)*size != f.PageBytes(0)-int64(f.Storage.Padding) {
		t.Fatalf("%d elements in a page of %d bytes", n, f.PageBytes(0))
	}
}

// TestOwnCoversEveryHeadOnce: what the ranks send for a prompt is each head of
// each group once, whoever else has it.
func TestOwnCoversEveryHeadOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFingerprint(t)
		p, err := f.PayloadFor(rapid.IntRange(1, 500).Draw(t, "tokens"))
		if err != nil {
			t.Fatal(err)
		}
		heads := map[[2]int]int{}
		for rank := range f.Ranks.Tensor {
			own := map[int64]bool{}
			for _, r := range f.Own(p, rank) {
				for _, s := range p.Sections {
					if r.Offset <= s.Offset && s.Offset+s.Bytes() <= r.Offset+r.Length {
						own[s.Offset] = true
					}
				}
			}
			for _, s := range p.Sections {
				for h := range f.RankHeads(s.Group) {
					if own[s.Offset] {
						heads[[2]int{s.Group, f.FirstHead(s.Group, rank) + h}]++
					} else if q := f.Primary(s.Group, rank); q == rank || f.FirstHead(s.Group, q) != f.FirstHead(s.Group, rank) {
						t.Fatalf("rank %d relies on rank %d for group %d", rank, q, s.Group)
					}
				}
			}
		}
		for g := range f.Groups {
			for h := range f.Groups[g].Heads {
				if heads[[2]int{g, h}] != 1 {
					t.Fatalf("head %d of group %d travels %d times", h, g, heads[[2]int{g, h}])
				}
			}
		}
		want := int64(0)
		for _, s := range p.Sections {
			want += s.Bytes() * int64(min(f.Ranks.Tensor, f.Groups[s.Group].Heads))
		}
		if got := f.WireBytes(p, 0); got != want {
			t.Fatalf("%d bytes travel, want %d", got, want)
		}
	})
}
