package transformer

import "testing"

func BenchmarkPrefill(b *testing.B) {
	r := newRig(b, "moai/seeded", 1)
	for b.Loop() {
		r.run(prompt(1, 2000), 512, 64, 1)
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/2000*1e6, "us/token")
}

func BenchmarkStepAt4096(b *testing.B) {
	r := newRig(b, "moai/seeded", 1)
	c, tab := r.cache(64, 140), tables(0, 70)
	for at := 0; at < 4096; at += 512 {
		r.forward(c, []Chunk{{Tokens: prompt(2, 512), Start: at, Tables: tab}})
	}
	for b.Loop() {
		r.forward(c, []Chunk{{Tokens: []int{7}, Start: 4096, Tables: tab, Logits: true}})
	}
}
