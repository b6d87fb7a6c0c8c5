package prompt

import (
	"strings"
	"testing"
)

func TestMake(t *testing.T) {
	for _, lag := range []int{40, 512, 1000, 5000} {
		r := Make(2000, lag, 40)
		if len(r.Prompt) < 2000 {
			t.Errorf("lag %d: prompt of %d tokens", lag, len(r.Prompt))
		}
		if got := r.Prompt[len(r.Prompt)-lag:][:40]; got != r.Answer {
			t.Errorf("lag %d: a lag before the end stands %q, answer is %q", lag, got, r.Answer)
		}
		if !strings.HasPrefix(r.Answer, "The prompt is read on one machine") {
			t.Errorf("lag %d: answer %q does not begin a sentence", lag, r.Answer)
		}
	}
}
