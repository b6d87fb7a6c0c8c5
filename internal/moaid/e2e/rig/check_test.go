package rig

import "testing"

func TestCheckBites(t *testing.T) {
	good := Observation{PromptTokens: 9, Want: []int{1, 2}, Got: []int{1, 2}, Computed: 1, Bytes: 64, BytesExpected: 64}
	if w := Check([]Observation{good, good}); len(w) != 0 {
		t.Errorf("a good run is refused: %v", w)
	}
	for name, spoil := range map[string]func(*Observation){
		"other tokens":      func(o *Observation) { o.Got = []int{1, 3} },
		"fewer tokens":      func(o *Observation) { o.Got = o.Got[:1] },
		"no tokens":         func(o *Observation) { o.Got, o.Want = nil, nil },
		"silent recompute":  func(o *Observation) { o.Computed = 9 },
		"no transfer":       func(o *Observation) { o.Bytes = 0 },
		"too many bytes":    func(o *Observation) { o.Bytes++ },
		"nothing expected":  func(o *Observation) { o.Bytes, o.BytesExpected = 0, 0 },
		"two prompt tokens": func(o *Observation) { o.Computed = 2 },
	} {
		bad := good
		spoil(&bad)
		if len(Check([]Observation{good, bad})) == 0 {
			t.Errorf("%s is not noticed", name)
		}
	}
	if len(Check(nil)) == 0 {
		t.Error("an empty run passes")
	}
}
