package kvconn

import "testing"

// What was stored once is not stored again when a preempted prompt is computed anew.
func TestStoredOnce(t *testing.T) {
	var s send
	for i, c := range []struct {
		from, to, want int
		some           bool
	}{
		{0, 32, 0, true}, {32, 50, 32, true},
		{0, 32, 50, false}, {32, 64, 50, true}, // preempted, in steps of the same length
		{64, 70, 64, true},
		{0, 70, 70, false}, // and once more
	} {
		if from, some := s.fresh(c.from, c.to); some != c.some || some && from != c.want {
			t.Errorf("step %d: from %d, %v", i, from, some)
		}
	}
}
