package transformer

import (
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// benchFormats are the presets, and a packing whose rows have to be collected.
func benchFormats(b *testing.B) map[string]refmodel.Format {
	b.Helper()
	out := map[string]refmodel.Format{}
	for _, name := range refmodel.FormatNames() {
		f, err := refmodel.LookupFormat(name)
		if err != nil {
			b.Fatal(err)
		}
		out[name] = f
	}
	f := out["mi300x"]
	f.Packing, f.Order = kvcache.PackingShuffled, kvcache.OrderBHLNC
	out["shuffled"] = f
	return out
}

func BenchmarkPrefill(b *testing.B) {
	for name, f := range benchFormats(b) {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, "moai/seeded", 1)
			c, tab := r.cacheOf(f, 4000/f.BlockSize+2), tables(0, 2000/f.BlockSize+1)
			p := prompt(1, 2000)
			for b.Loop() {
				for at := 0; at < len(p); at += 512 {
					r.forward(c, []Chunk{{Tokens: p[at:min(len(p), at+512)], Start: at, Tables: tab}})
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/2000*1e6, "us/token")
		})
	}
}

func BenchmarkStepAt4096(b *testing.B) {
	for name, f := range benchFormats(b) {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, "moai/seeded", 1)
			per := 4096/f.BlockSize + 1
			c, tab := r.cacheOf(f, 2*per), tables(0, per)
			for at := 0; at < 4096; at += 512 {
				r.forward(c, []Chunk{{Tokens: prompt(2, 512), Start: at, Tables: tab}})
			}
			for b.Loop() {
				r.forward(c, []Chunk{{Tokens: []int{7}, Start: 4096, Tables: tab, Logits: true}})
			}
		})
	}
}
