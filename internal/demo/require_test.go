package demo

import "testing"

func TestAtLeast(t *testing.T) {
	for version, want := range map[string]bool{
		"1.11.4": true, "1.12.0-rc1": true, "1.10.9": false, "2.0.0": true, "0.13": false, "": false, "1": false, "x.y.z": false,
	} {
		if got := AtLeast(version, [2]int{1, 11}); got != want {
			t.Errorf("AtLeast(%q) = %v", version, got)
		}
	}
}
