// Package bytetok is the reference engine's tokenizer: a token is a byte, and
// the ids above 255 are special and have no text.
package bytetok

import (
	"strings"
	"unicode/utf8"
)

// Encode gives a token for every byte of text.
func Encode(text string) []int {
	out := make([]int, len(text))
	for i := range len(text) {
		out[i] = int(text[i])
	}
	return out
}

// Decoder turns tokens into text piece by piece. Every piece is valid UTF-8: an
// incomplete sequence is held back until it is complete, and a wrong one becomes
// the replacement character.
type Decoder struct{ held []byte }

// Push gives the text that token completes; it may be empty.
func (d *Decoder) Push(token int) string {
	if token < 0 || token > 255 {
		return d.Flush()
	}
	d.held = append(d.held, byte(token))
	var out strings.Builder
	for len(d.held) > 0 && utf8.FullRune(d.held) {
		r, n := utf8.DecodeRune(d.held)
		out.WriteRune(r)
		d.held = d.held[n:]
	}
	return out.String()
}

// Flush gives what was held back, as replacement characters.
func (d *Decoder) Flush() string {
	out := strings.Repeat(string(utf8.RuneError), len(d.held))
	d.held = nil
	return out
}
