package conformance

import (
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// Format is how the engines of a run keep and divide their cache.
type Format struct {
	Name        string
	Fingerprint kvcache.Fingerprint
	Replicas    int // data-parallel, of each engine
}

// Fingerprint is of the small cache that the suite's simplest engines have: one
// rank, two groups, a page of 128 bytes.
func Fingerprint() kvcache.Fingerprint {
	return fingerprint(1, full(1), sliding(1))
}

// Formats are the divisions that version 1 knows: one rank and several, heads
// that each rank has alone, heads that ranks share so that some have nothing of
// their own, and replicas.
func Formats() []Format {
	return []Format{
		{"TP1", Fingerprint(), 1},
		{"TP2", fingerprint(2, full(4), sliding(4)), 1},
		{"TP4", fingerprint(4, full(4), sliding(8)), 1},
		{"TP2Latent", fingerprint(2, kvcache.Group{Kind: kvcache.GroupLatent, Heads: 1, KeyDim: 12, Layers: []int{0, 1, 2}}), 1},
		{"TP4FewHeads", fingerprint(4, full(2), sliding(4)), 1}, // ranks 1 and 3 have only the sliding group alone
		{"DP2", Fingerprint(), 2},
		{"DP2TP2", fingerprint(2, full(1), sliding(2)), 2},
	}
}

// FormatNamed finds one of Formats.
func FormatNamed(t testing.TB, name string) Format {
	t.Helper()
	for _, f := range Formats() {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("the suite has no format %s", name)
	return Format{}
}

func fingerprint(tensor int, groups ...kvcache.Group) kvcache.Fingerprint {
	return kvcache.Fingerprint{Version: kvcache.Version, Model: kvcache.Model{Config: "m", Weights: "m", Tokenizer: "m"}, Engine: kvcache.Engine{Family: "conformance", Release: "1"},
		Storage: kvcache.Storage{DType: kvcache.BF16, Scales: kvcache.Scales{Kind: kvcache.ScaleNone}, Order: kvcache.OrderLBHNC, Packing: kvcache.PackingPacked, BlockSize: 4, KernelBlock: 4},
		Ranks:   kvcache.Ranks{Tensor: tensor, Pipeline: 1},
		Groups:  groups,
	}
}

func full(heads int) kvcache.Group {
	return kvcache.Group{Kind: kvcache.GroupFull, Heads: heads, KeyDim: 8, ValueDim: 8, Layers: []int{0, 2}}
}

func sliding(heads int) kvcache.Group {
	return kvcache.Group{Kind: kvcache.GroupSliding, Heads: heads, KeyDim: 8, ValueDim: 8, Window: 8, Layers: []int{1, 3}}
}

// ranks is the number of workers of a replica.
func (f *Format) ranks() int { return f.Fingerprint.Ranks.Tensor }

// options asks for engines of the format.
func (f *Format) options(fast bool) Options {
	return Options{Fingerprint: f.Fingerprint, Replicas: f.Replicas, Staging: arenaBytes * int64(f.ranks()*f.Replicas), Fast: fast}
}

// own gives what each rank stores of a prompt of n tokens.
func (f *Format) own(p kvcache.Payload) [][]kvcache.Range {
	out := make([][]kvcache.Range, f.ranks())
	for rank := range out {
		out[rank] = f.Fingerprint.Own(p, rank)
	}
	return out
}
