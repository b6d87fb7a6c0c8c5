package kvd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
)

// plain is a small cache whose elements are bf16.
func plain(tensor int, change ...func(*kvcache.Fingerprint)) kvcache.Fingerprint {
	fp := testFingerprint()
	fp.Ranks.Tensor = tensor
	fp.Groups = []kvcache.Group{
		{Kind: kvcache.GroupFull, Heads: 4, KeyDim: 16, ValueDim: 16, Layers: []int{0, 2}},
		{Kind: kvcache.GroupSliding, Heads: 4, KeyDim: 16, ValueDim: 16, Window: 24, Layers: []int{1}},
	}
	for _, c := range change {
		c(&fp)
	}
	return fp
}

func heads(n int) func(*kvcache.Fingerprint) {
	return func(fp *kvcache.Fingerprint) {
		for i := range fp.Groups {
			fp.Groups[i].Heads = n
		}
	}
}

func latent(fp *kvcache.Fingerprint) {
	fp.Groups = []kvcache.Group{{Kind: kvcache.GroupLatent, Heads: 1, KeyDim: 48, Layers: []int{0, 1, 2}}}
}

func large(fp *kvcache.Fingerprint) {
	fp.Storage.BlockSize, fp.Storage.KernelBlock, fp.Storage.Order = 64, 32, kvcache.OrderLBNHC
	fp.Storage.Padding = 64
}

func apart(fp *kvcache.Fingerprint) { fp.Storage.Packing = kvcache.PackingApart }

func fp8(d kvcache.DType, doubled bool) func(*kvcache.Fingerprint) {
	return func(fp *kvcache.Fingerprint) {
		fp.Storage.DType = d
		fp.Storage.Scales = kvcache.Scales{Kind: kvcache.ScaleTensor, Hash: "s", Doubled: doubled}
	}
}

func bare(d kvcache.DType) func(*kvcache.Fingerprint) {
	return func(fp *kvcache.Fingerprint) { fp.Storage.DType = d }
}

var unlike = map[string]struct {
	prefill, decode kvcache.Fingerprint
	identity        bool
}{
	"ranks 1 to 4":                   {plain(1), plain(4), false},
	"ranks 4 to 2":                   {plain(4), plain(2), false},
	"ranks 2 to 4":                   {plain(2), plain(4), false},
	"ranks 4 to 4":                   {plain(4), plain(4), true},
	"fewer heads than ranks":         {plain(4, heads(2)), plain(4, heads(2)), true},
	"fewer heads than ranks, 1 to 4": {plain(1, heads(2)), plain(4, heads(2)), false},
	"fewer heads than ranks, 4 to 2": {plain(4, heads(2)), plain(2, heads(2)), false},
	"latent 2 to 2":                  {plain(2, latent), plain(2, latent), true},
	"latent 2 to 4":                  {plain(2, latent), plain(4, latent), false},
	"latent 4 to 1, large blocks":    {plain(4, latent), plain(1, latent, large), false},
	"blocks 16 to 64, other order":   {plain(1), plain(1, large), false},
	"blocks 64 to 16 and ranks":      {plain(2, large), plain(4, apart), false},
	"fn to fnuz":                     {plain(2, fp8(kvcache.FP8E4M3FN, false)), plain(1, large, fp8(kvcache.FP8E4M3FNUZ, true)), false},
}

// formats gives linked daemons with an engine of each format, paired with options.
func formats(t *testing.T, prefill, decode kvcache.Fingerprint, o kvcompat.Options) (p, d *node, pe, de *fake) {
	t.Helper()
	p, d = newNode(t, "p", shortGrace), newNode(t, "d", shortGrace)
	link(t, p, d, api.EncryptionAEAD)
	pe, de = p.engine("prefill", "prefill", prefill), d.engine("decode", "decode", decode)
	pairWith(t, o, p, d)
	return p, d, pe, de
}

func TestUnlikeFormats(t *testing.T) {
	for name, c := range unlike {
		t.Run(name, func(t *testing.T) {
			p, d, pe, de := formats(t, c.prefill, c.decode, kvcompat.Options{})
			for _, x := range []struct{ tokens, from int }{{1, 0}, {17, 0}, {200, 0}, {200, 70}} {
				id, hash := newID(), tokenHash(x.tokens, "a")
				pe.prefill(id, x.tokens, hash, false)
				de.claim(id, x.tokens, hash, x.from)
				late := pe.storeCells(id, x.tokens, mixed(id))
				d.waitState(id, "receiving")
				late()
				v := de.verdict(id)
				if v.Verdict != enginesock.Ready {
					t.Fatalf("%+v: %+v", x, v)
				}
				n, err := de.readCells(id, x.tokens, v, mixed(id))
				if err != nil || x.from == 0 && n != elements(de, x.tokens) || n == 0 {
					t.Fatalf("%+v: %d elements, %v", x, n, err)
				}
				de.load(id, true)
				if end := pe.released(id); end.Outcome != enginesock.Committed {
					t.Fatalf("%+v: sender ended %+v", x, end)
				}
				payload := must[kvcache.Payload](t, "payload")(de.fp.PayloadFor(x.tokens))
				want := de.fp.WireBytes(payload, x.from)
				got := d.waitState(id, "committed")
				sent := p.waitState(id, "committed")
				if got.BytesMoved != want || got.BytesExpected != want || sent.BytesMoved != want {
					t.Errorf("%+v: %d of %d bytes received, %d sent, geometry gives %d", x, got.BytesMoved, got.BytesExpected, sent.BytesMoved, want)
				}
				if (sent.Conversion == "none") != c.identity || sent.ValuesClipped+sent.ValuesRounded != 0 {
					t.Errorf("%+v", sent)
				}
			}
			p.noPages()
			d.noPages()
			converted := strings.Contains(string(must[[]byte](t, "metrics")(p.c.Metrics(t.Context()))), `moai_kv_converted_bytes_total{peer="d"}`)
			if converted == c.identity {
				t.Errorf("metrics say that something was converted: %v", converted)
			}
		})
	}
}

// lossless: elements that the other format does not have.
func TestInexactEndsBeforeItLeaves(t *testing.T) {
	p, d, pe, de := formats(t, plain(2, bare(kvcache.FP8E4M3FN)), plain(1, bare(kvcache.FP8E4M3FNUZ)), kvcompat.Options{})
	good := func(int, int, int, kvcache.Part, int) byte { return 0x20 }
	bad := func(layer, _, token int, _ kvcache.Part, dim int) byte {
		if layer == 2 && token == 70 && dim == 3 {
			return 0x7e // 448, of which the other format knows 240
		}
		return 0x20
	}
	for _, c := range []struct {
		name string
		c    cells
		code enginesock.FailureCode
	}{{"in range", good, ""}, {"beyond", bad, enginesock.FailInexact}} {
		id, hash := newID(), tokenHash(90, "a")
		pe.prefill(id, 90, hash, false)
		de.claim(id, 90, hash, 0)
		pe.storeCells(id, 90, c.c)()
		if v := de.verdict(id); v.Code != c.code {
			t.Fatalf("%s: %+v", c.name, v)
		}
		if c.code == "" {
			de.load(id, true)
			pe.released(id)
			continue
		}
		if end := pe.released(id); end.Outcome != enginesock.Aborted || !strings.Contains(end.Reason, "inexact") {
			t.Errorf("sender ended %+v", end)
		}
		if x := p.waitState(id, "aborted"); x.ValuesClipped != 0 || !strings.Contains(x.Conversion, "guarded") {
			t.Errorf("%+v", x)
		}
	}
	p.noPages()
	d.noPages()
	if m := string(must[[]byte](t, "metrics")(p.c.Metrics(t.Context()))); !strings.Contains(m, `moai_kv_inexact_aborts_total{peer="d"} 1`) {
		t.Error("the abort was not counted")
	}
}

// What an operator allows is sent, and counted.
func TestLossIsCounted(t *testing.T) {
	p, _, pe, de := formats(t, plain(1, bare(kvcache.BF16)), plain(2, bare(kvcache.FP8E4M3FN)), kvcompat.Options{AllowLossy: true})
	id, hash := newID(), tokenHash(40, "a")
	pe.prefill(id, 40, hash, false)
	de.claim(id, 40, hash, 0)
	// Codes 0x3f00 and 0x4f00 are 0.5, and far beyond.
	pe.storeCells(id, 40, func(layer, _, token int, part kvcache.Part, dim int) byte {
		if layer == 0 && token < 5 && part == kvcache.Value && dim < 2 {
			return 0x4f
		}
		return 0x3f
	})()
	if v := de.verdict(id); v.Verdict != enginesock.Ready {
		t.Fatalf("%+v", v)
	}
	de.load(id, true)
	pe.released(id)
	x := p.waitState(id, "committed")
	if x.ValuesClipped != 4*5*2 || x.ValuesRounded != 0 || !strings.Contains(x.Conversion, "lossy") {
		t.Errorf("%+v", x)
	}
	if m := string(must[[]byte](t, "metrics")(p.c.Metrics(t.Context()))); !strings.Contains(m, `moai_kv_changed_values_total{change="clipped",peer="d"} 40`) {
		t.Error("the clipped values were not counted")
	}
	if !strings.Contains(p.logs.String(), `"values_clipped":40`) {
		t.Error("the log does not say it")
	}
}

// Loss needs the word of both ends.
func TestStricterEndWins(t *testing.T) {
	p, d, pe, de := formats(t, plain(1), plain(1, bare(kvcache.FP8E4M3FN)), kvcompat.Options{})
	for what, n := range map[string]*node{"prefill's end only": p, "decode's end only": d} {
		pairWith(t, kvcompat.Options{}, p, d)
		pairWith(t, kvcompat.Options{AllowLossy: true}, n)
		id, hash := newID(), tokenHash(40, "a")
		pe.prefill(id, 40, hash, true)
		de.claim(id, 40, hash, 0)
		if v := de.verdict(id); v.Code != enginesock.FailIncompatible || !strings.Contains(v.Reason, "allow_lossy") {
			t.Errorf("%s: %+v", what, v)
		}
		st := must[*api.EngineStatus](t, "engine")(n.c.GetEngine(t.Context(), map[*node]string{p: "prefill", d: "decode"}[n], 0))
		if len(st.Incompatible) != 0 || len(st.Conversions) != 1 || st.Conversions[0].Class != kvcompat.Lossy || st.Conversions[0].Prefill.Engine != "prefill" {
			t.Errorf("%s: %+v %+v", what, st.Incompatible, st.Conversions)
		}
	}
}

// What is under way when the operator takes the word back does not end as a commit.
func TestStricterOptionsEndTransfers(t *testing.T) {
	p, d, pe, de := formats(t, plain(1), plain(1, bare(kvcache.FP8E4M3FN)), kvcompat.Options{AllowLossy: true})
	id, hash := newID(), tokenHash(40, "a")
	pe.prefill(id, 40, hash, false)
	de.claim(id, 40, hash, 0)
	late := pe.storeCells(id, 40, mixed(id))
	d.waitState(id, "receiving")
	pairWith(t, kvcompat.Options{AllowLossy: true}, p) // says the same
	if x, ok := p.find(id); !ok || x.State == "aborted" {
		t.Fatalf("%+v", x)
	}
	pairWith(t, kvcompat.Options{}, p)
	if v := de.verdict(id); v.Code != enginesock.FailIncompatible {
		t.Errorf("%+v", v)
	}
	late()
	if end := pe.released(id); end.Outcome != enginesock.Aborted || !strings.Contains(end.Reason, "allow_lossy") {
		t.Errorf("%+v", end)
	}
}

// TestConversionSurvivesASession: only the missing ranges are converted again.
func TestConversionSurvivesASession(t *testing.T) {
	p, d, pe, de := formats(t, plain(4), plain(2, large), kvcompat.Options{})
	id, hash, tokens := newID(), tokenHash(500, "a"), 500
	pe.prefill(id, tokens, hash, false)
	de.claim(id, tokens, hash, 0)
	late := pe.storeCells(id, tokens, mixed(id))
	eventually(t, "some bytes are there", func() bool { x, _ := d.find(id); return x.BytesMoved > 0 })
	for range 2 {
		n := 0
		_ = d.d.own.call(t.Context(), func() { n = int(d.d.sessionNum) })
		_ = p.d.own.call(t.Context(), func() { p.d.peers["d"].s.Close(10, "test") })
		eventually(t, "a new session", func() bool {
			now := 0
			_ = d.d.own.call(t.Context(), func() { now = int(d.d.sessionNum) })
			return now > n && func() bool { _, ok := d.find(id); return ok }()
		})
		waitLink(t, p)
	}
	late()
	v := de.verdict(id)
	if n, err := de.readCells(id, tokens, v, mixed(id)); err != nil || n != elements(de, tokens) {
		t.Fatalf("%d elements, %v", n, err)
	}
	de.load(id, true)
	pe.released(id)
	payload := must[kvcache.Payload](t, "payload")(de.fp.PayloadFor(tokens))
	if x := d.waitState(id, "committed"); x.BytesMoved != de.fp.WireBytes(payload, 0) {
		t.Errorf("moved %d bytes, want %d", x.BytesMoved, de.fp.WireBytes(payload, 0))
	}
}

// Two engines on each node, every prefill with every decode, at once.
func TestTwoEnginesOnANode(t *testing.T) {
	p, d := newNode(t, "p", shortGrace), newNode(t, "d", shortGrace)
	link(t, p, d, api.EncryptionAEAD)
	pes := []*fake{p.engine("p0", "prefill", plain(2)), p.engine("p1", "prefill", plain(4))}
	des := []*fake{d.engine("d0", "decode", plain(1, large)), d.engine("d1", "decode", plain(2))}
	pools := api.Pair{Name: "main"}
	for i := range 2 {
		pools.Prefill = append(pools.Prefill, api.PeerEngine{Node: "p", Engine: fmt.Sprintf("p%d", i)})
		pools.Decode = append(pools.Decode, api.PeerEngine{Node: "d", Engine: fmt.Sprintf("d%d", i)})
	}
	for _, n := range []*node{p, d} {
		must[*api.Pair](t, "pair")(n.c.PutPair(t.Context(), pools))
	}
	type one struct {
		id     string
		pe, de *fake
	}
	var all []one
	const tokens = 150
	hash := tokenHash(tokens, "a")
	for i, pe := range pes {
		for _, de := range des {
			id := newID()
			de.sched.Claim(enginesock.Claim{ID: id, Tokens: tokens, TokenHash: hash, Source: enginesock.Endpoint{Node: "p", Engine: fmt.Sprintf("p%d", i)}})
			pe.prefill(id, tokens, hash, false)
			all = append(all, one{id, pe, de})
		}
	}
	for _, x := range all {
		x.pe.storeCells(x.id, tokens, mixed(x.id))()
	}
	for _, x := range all {
		v := x.de.verdict(x.id)
		if n, err := x.de.readCells(x.id, tokens, v, mixed(x.id)); err != nil || n != elements(x.de, tokens) {
			t.Fatalf("%d elements, %v", n, err)
		}
		x.de.load(x.id, true)
		if end := x.pe.released(x.id); end.Outcome != enginesock.Committed {
			t.Errorf("%+v", end)
		}
	}
	for _, name := range []string{"d0", "d1"} {
		if st := must[*api.EngineStatus](t, "engine")(d.c.GetEngine(t.Context(), name, 0)); len(st.Conversions) != 2 {
			t.Errorf("%s: %+v", name, st.Conversions)
		}
	}
	p.noPages()
	d.noPages()
}
