package rig

import (
	"fmt"
	"slices"
)

// Observation is one disaggregated answer and what was seen of its transfer.
type Observation struct {
	PromptTokens  int
	Want, Got     []int // tokens of one engine alone, and of the pair
	Computed      int   // prompt tokens that decode computed
	Bytes         int64 // KV that decode received
	BytesExpected int64 // by geometry
}

// Check says what is wrong with a run: tokens that differ, and tokens that are
// equal for the wrong reason, because decode computed the prompt itself or
// received other bytes than the prompt's KV has.
func Check(run []Observation) []string {
	var wrong []string
	if len(run) == 0 {
		wrong = append(wrong, "nothing was run")
	}
	for i, o := range run {
		say := func(format string, args ...any) {
			wrong = append(wrong, fmt.Sprintf("prompt %d of %d tokens: ", i, o.PromptTokens)+fmt.Sprintf(format, args...))
		}
		if len(o.Got) == 0 || !slices.Equal(o.Got, o.Want) {
			say("got tokens %v, want %v", o.Got, o.Want)
		}
		if o.Computed > 1 {
			say("decode computed %d prompt tokens, at most 1 is right", o.Computed)
		}
		if o.BytesExpected <= 0 || o.Bytes != o.BytesExpected {
			say("decode received %d bytes, geometry gives %d", o.Bytes, o.BytesExpected)
		}
	}
	return wrong
}
