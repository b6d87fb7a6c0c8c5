package openai

import (
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/bytetok"
)

// text turns tokens into pieces of an answer. What could be the beginning of a
// stop string is held back until it is known not to be one.
type text struct {
	dec   bytetok.Decoder
	stops []string
	held  string
	done  bool // a stop string was found
}

// push gives the text that may be sent after tokens.
func (t *text) push(tokens []int) string {
	for _, id := range tokens {
		t.held += t.dec.Push(id)
	}
	return t.take(false)
}

// flush gives the rest.
func (t *text) flush() string {
	if !t.done {
		t.held += t.dec.Flush()
	}
	return t.take(true)
}

func (t *text) take(all bool) string {
	if t.done {
		return ""
	}
	cut, keep := -1, 0
	for _, s := range t.stops {
		if i := strings.Index(t.held, s); i >= 0 && (cut < 0 || i < cut) {
			cut = i
		}
		for n := min(len(s)-1, len(t.held)); n > keep; n-- {
			if strings.HasSuffix(t.held, s[:n]) {
				keep = n
			}
		}
	}
	if cut >= 0 {
		t.done = true
		out := t.held[:cut]
		t.held = ""
		return out
	}
	if all {
		keep = 0
	}
	out := t.held[:len(t.held)-keep]
	t.held = t.held[len(out):]
	return out
}
