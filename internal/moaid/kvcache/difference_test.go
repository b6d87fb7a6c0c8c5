package kvcache

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestDifferences(t *testing.T) {
	a, b := small(), small()
	if d := Differences(a, b); len(d) != 0 {
		t.Errorf("%+v", d)
	}
	b.Storage.BlockSize = 64
	b.Storage.Padding = 16
	b.Groups[1].Window = 48
	b.Groups[0].Layers = []int{0, 4}
	b.Model.Weights = "v"
	want := []Difference{
		{"groups.0.layers", "[0,2]", "[0,4]"},
		{"groups.1.window", "32", "48"},
		{"model.weights", `"w"`, `"v"`},
		{"storage.block_size", "16", "64"},
		{"storage.padding", "", "16"},
	}
	if d := Differences(a, b); !slices.Equal(d, want) {
		t.Errorf("%+v", d)
	}
	b.Groups = b.Groups[:1]
	if d := Differences(a, b); d[1].Attribute != "groups.1" || d[1].B != "" {
		t.Errorf("%+v", d)
	}
}

// TestNoDifferencesMeansEqual: nothing that the hash sees is overlooked.
func TestNoDifferencesMeansEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawFingerprint(t), drawFingerprint(t)
		if rapid.Bool().Draw(t, "same") {
			b = a
		}
		if (len(Differences(a, b)) == 0) != (a.Hash() == b.Hash()) {
			t.Fatalf("%+v and %+v: %+v", a, b, Differences(a, b))
		}
	})
}
