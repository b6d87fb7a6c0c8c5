package transformer

import (
	"math"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// leastMargin checks that the model recites after each of several prefixes of a prompt
// and then generates; it gives the least logit by which the right token leads. A
// prompt's prefixes are prompts too, and chunks do not change a bit, so one pass checks
// all of them.
func leastMargin(t *testing.T, model refmodel.Model, f refmodel.Format, seed uint64, prompts, stride, steps int) float64 {
	t.Helper()
	lag := model.Lag()
	p := prompt(seed, lag+1+(prompts-1)*stride)
	fp, err := model.Fingerprint(seed, f)
	if err != nil {
		t.Fatal(err)
	}
	tab, blocks := tablesFor(&fp, len(p)+steps)
	r := newRanks(t, model, f, seed, blocks)
	least := math.Inf(1)
	check := func(n int, want int, lo []float32) {
		if got := argmax(lo); got != want {
			t.Errorf("%s, %+v, after %d tokens: got %d, want %d", model.Name, f, n, got, want)
		}
		for id, x := range lo {
			if id != want {
				least = min(least, float64(lo[want]-x))
			}
		}
	}
	for at, end := 0, lag+1; end <= len(p); at, end = end, end+stride {
		want, err := model.Recite(p[:end], 1)
		if err != nil {
			t.Fatal(err)
		}
		check(end, want[0], r.forward(Chunk{Tokens: p[at:end], Start: at, Tables: tab, Logits: true})[0])
	}
	want, err := model.Recite(p, steps)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range want[:steps-1] {
		check(len(p)+i+1, want[i+1], r.forward(Chunk{Tokens: []int{id}, Start: len(p) + i, Tables: tab, Logits: true})[0])
	}
	return least
}

// Codes differ in eight elements at least, so that the next token is sixteen behind;
// what the margin lacks of that is what attention and encoding add of other tokens.
const enough = 8

func recitingModels(t *testing.T) []refmodel.Model {
	t.Helper()
	var out []refmodel.Model
	for _, name := range refmodel.Names() {
		m, err := refmodel.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if m.Weights == refmodel.Reciting {
			out = append(out, m)
		}
	}
	return out
}

func TestRecitesFromTheLagBack(t *testing.T) {
	for _, model := range recitingModels(t) {
		least := leastMargin(t, model, refmodel.DefaultFormat(), 1, 50, 13, 24)
		t.Logf("%s: least margin %.2f", model.Name, least)
		if least < enough {
			t.Errorf("%s: the least margin of the right token is %v", model.Name, least)
		}
	}
}

func TestRecitesInEveryEncoding(t *testing.T) {
	for _, model := range recitingModels(t) {
		for i, f := range encodings() {
			least := leastMargin(t, model, f, uint64(i+1), 6, 7, 4)
			t.Logf("%s, %s with scales %s: least margin %.2f", model.Name, f.DType, f.Scales, least)
			if least < enough {
				t.Errorf("%s, %+v: the least margin of the right token is %v", model.Name, f, least)
			}
		}
	}
}

func TestRecitesAsAcceleratorsOnFourRanks(t *testing.T) {
	for _, model := range recitingModels(t) {
		for _, preset := range []string{"h100", "mi300x"} {
			f, err := refmodel.LookupFormat(preset)
			if err != nil {
				t.Fatal(err)
			}
			f.Tensor = 4
			if least := leastMargin(t, model, f, 1, 3, 17, 4); least < enough {
				t.Errorf("%s, %+v: the least margin of the right token is %v", model.Name, f, least)
			}
		}
	}
}
