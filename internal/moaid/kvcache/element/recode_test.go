package element

import (
	"math"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

const fn, fnuz = kvcache.FP8E4M3FN, kvcache.FP8E4M3FNUZ

// TestRecodeOfEveryByte: each pair of fn and fnuz with each factor, against the
// specification's values and a search for the nearest.
func TestRecodeOfEveryByte(t *testing.T) {
	for _, c := range []struct {
		from, to        kvcache.DType
		factor          float32
		clipped, rounds int
	}{
		{fn, fnuz, 0.5, 0, 0}, // the checkpoint's scale doubled on the destination
		{fn, fnuz, 1, 14, 0},
		{fnuz, fn, 2, 2, 0},
		{fnuz, fn, 1, 0, 16},
		{fnuz, fnuz, 2, 16, 0},
		{fnuz, fnuz, 0.5, 0, 16},
		{fn, fn, 1, 0, 0}, {fnuz, fnuz, 1, 0, 0}, {kvcache.FP8E5M2, kvcache.FP8E5M2, 1, 0, 0},
	} {
		r, err := NewRecoder(c.from, c.to, c.factor)
		if err != nil {
			t.Fatal(err)
		}
		n := newNearest(c.to)
		clipped, rounded := 0, 0
		for b := range 256 {
			got, exact := r.Recode(uint32(b))
			want, wantExact := uint32(b), Exact
			if v, number := slow8(c.from, b); r.Keeps() {
			} else if !number {
				want = map[kvcache.DType]uint32{fn: 0x7f, fnuz: 0x80}[c.to]
			} else {
				want, wantExact = n.find(v * float64(c.factor))
			}
			if got != want || exact != wantExact {
				t.Errorf("%s to %s times %g: %#x became %#x (%d), want %#x (%d)", c.from, c.to, c.factor, b, got, exact, want, wantExact)
			}
			switch exact {
			case Clipped:
				clipped++
			case Rounded:
				rounded++
			case Exact:
			}
		}
		if clipped != c.clipped || rounded != c.rounds || r.Clips() != (clipped > 0) || r.Rounds() != (rounded > 0) {
			t.Errorf("%s to %s times %g clips %d and rounds %d codes", c.from, c.to, c.factor, clipped, rounded)
		}
	}
}

// TestDoubledScaleKeepsBytes: what research on the hardware's tables found, as
// bytes.
func TestDoubledScaleKeepsBytes(t *testing.T) {
	there, err := NewRecoder(fn, fnuz, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	back, err := NewRecoder(fnuz, fn, 2)
	if err != nil {
		t.Fatal(err)
	}
	for b := range uint32(256) {
		want := b
		switch b {
		case 0x80:
			want = 0
		case 0x7f, 0xff:
			want = 0x80
		}
		if got, _ := there.Recode(b); got != want {
			t.Errorf("fn %#x became %#x", b, got)
		}
		want = b
		switch b {
		case 0x80:
			want = 0x7f
		case 0x7f, 0xff:
			want = b - 1
		}
		got, exact := back.Recode(b)
		if got != want || (exact == Clipped) != (b == 0x7f || b == 0xff) {
			t.Errorf("fnuz %#x became %#x (%d)", b, got, exact)
		}
	}
}

func TestWideningIsExact(t *testing.T) {
	for from, tos := range map[kvcache.DType][]kvcache.DType{
		kvcache.BF16: {kvcache.FP32}, kvcache.FP16: {kvcache.FP32},
		fn: {kvcache.BF16, kvcache.FP16, kvcache.FP32}, fnuz: {kvcache.BF16, kvcache.FP16, kvcache.FP32},
	} {
		for _, to := range tos {
			r, err := NewRecoder(from, to, 1)
			if err != nil {
				t.Fatal(err)
			}
			back, err := NewRecoder(to, from, 1)
			if err != nil {
				t.Fatal(err)
			}
			if r.Clips() || r.Rounds() || !back.Rounds() {
				t.Errorf("%s to %s: %t %t", from, to, r.Clips(), r.Rounds())
			}
			for c := range uint32(1) << (8 * from.Size()) {
				wide, exact := r.Recode(c)
				v, w := Decode(from, c), Decode(to, wide)
				if exact != Exact || v != w && !(math.IsNaN(float64(v)) && math.IsNaN(float64(w))) {
					t.Fatalf("%s %#x (%g) became %s %#x (%g)", from, c, v, to, wide, w)
				}
				if got, exact := back.Recode(wide); got != c || exact != Exact {
					t.Fatalf("%s %#x came back from %s as %#x", from, c, to, got)
				}
			}
		}
	}
}

func TestNewRecoderRefuses(t *testing.T) {
	for _, c := range []struct {
		from, to kvcache.DType
		factor   float32
	}{{fn, fnuz, 3}, {fn, fnuz, 0}, {fn, fnuz, float32(math.NaN())}, {fn, kvcache.BF16, 2}, {kvcache.NVFP4, kvcache.NVFP4, 1}, {"bf17", fn, 1}} {
		if _, err := NewRecoder(c.from, c.to, c.factor); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}
