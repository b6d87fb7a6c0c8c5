package kvcompat

import (
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

func base() kvcache.Fingerprint {
	return kvcache.Fingerprint{ModelHash: strings.Repeat("ab", 32), Engine: "e/0", DType: kvcache.BF16, Layout: kvcache.LayoutLBHNC, BlockSize: 16, KVHeads: 8, HeadDim: 64, TensorSize: 2,
		Groups: []kvcache.Group{{Kind: kvcache.GroupFull, Layers: []int{0, 2}}, {Kind: kvcache.GroupSliding, Window: 32, Layers: []int{1, 3}}}}
}

// changes spoil one attribute each, and stay valid.
var changes = map[string]func(*kvcache.Fingerprint){
	"model_hash":  func(f *kvcache.Fingerprint) { f.ModelHash = strings.Repeat("cd", 32) },
	"engine":      func(f *kvcache.Fingerprint) { f.Engine = "e/1" },
	"dtype":       func(f *kvcache.Fingerprint) { f.DType = kvcache.FP8E4M3FN },
	"layout":      func(f *kvcache.Fingerprint) { f.Layout = kvcache.LayoutLBNHC },
	"block_size":  func(f *kvcache.Fingerprint) { f.BlockSize = 32 },
	"kv_heads":    func(f *kvcache.Fingerprint) { f.KVHeads = 16 },
	"head_dim":    func(f *kvcache.Fingerprint) { f.HeadDim = 128 },
	"tensor_size": func(f *kvcache.Fingerprint) { f.TensorSize = 4 },
	"groups":      func(f *kvcache.Fingerprint) { f.Groups[1].Window = 64 },
}

func TestEqualIsCompatible(t *testing.T) {
	if v := Check(base(), base()); !v.Compatible || v.Err() != nil || len(v.Reasons) != 0 {
		t.Errorf("%+v", v)
	}
}

func TestEachAttributeIsNamed(t *testing.T) {
	for attribute, change := range changes {
		other := base()
		change(&other)
		if err := other.Validate(); err != nil {
			t.Fatalf("%s: %v", attribute, err)
		}
		for _, v := range []Verdict{Check(base(), other), Check(other, base())} {
			if v.Compatible || len(v.Reasons) != 1 || v.Reasons[0].Attribute != attribute {
				t.Errorf("%s: %+v", attribute, v)
				continue
			}
			r := v.Reasons[0]
			if r.Why == "" || r.Fix == "" || r.Prefill == r.Decode || v.Err() == nil || !strings.Contains(v.Err().Error(), attribute) {
				t.Errorf("%s: the operator is told %+v, %v", attribute, r, v.Err())
			}
		}
	}
}

// TestFP8Variants: two encodings of the same width are not the same numbers.
func TestFP8Variants(t *testing.T) {
	a, b := base(), base()
	a.DType, b.DType = kvcache.FP8E4M3FN, kvcache.FP8E4M3FNZ
	if v := Check(a, b); v.Compatible {
		t.Error("fn and fnuz were mixed")
	}
}

// TestCompatibleMeansEqualHashes: the verdict overlooks no field.
func TestCompatibleMeansEqualHashes(t *testing.T) {
	for _, c := range changes {
		a, b := base(), base()
		c(&b)
		if Check(a, b).Compatible != (a.Hash() == b.Hash()) {
			t.Errorf("%+v", b)
		}
	}
	all := base()
	for _, c := range changes {
		c(&all)
	}
	if v := Check(base(), all); len(v.Reasons) != len(changes) {
		t.Errorf("%d reasons for %d differences", len(v.Reasons), len(changes))
	}
}
