package bytetok

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func decode(tokens []int) (string, bool) {
	var d Decoder
	var out strings.Builder
	valid := true
	for _, t := range tokens {
		p := d.Push(t)
		valid = valid && utf8.ValidString(p)
		out.WriteString(p)
	}
	out.WriteString(d.Flush())
	return out.String(), valid
}

func TestValidTextSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		if !utf8.ValidString(text) {
			return
		}
		if got, valid := decode(Encode(text)); got != text || !valid {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

func TestAnyBytesGiveValidPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		got, valid := decode(Encode(string(b)))
		if !valid || !utf8.ValidString(got) {
			t.Fatalf("%x became %q", b, got)
		}
	})
}

func TestSpecialTokensHaveNoText(t *testing.T) {
	if got, _ := decode([]int{256, 'a', 0xc3, 257, 'b'}); got != "a\uFFFDb" {
		t.Errorf("got %q", got)
	}
}
