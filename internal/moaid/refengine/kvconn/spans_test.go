package kvconn

import (
	"bytes"
	"crypto/rand"
	"testing"

	"pgregory.net/rapid"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// cut splits n bytes into pieces at random places.
func cut(t *rapid.T, n int64, label string) []int64 {
	var out []int64
	for n > 0 {
		k := rapid.Int64Range(1, n).Draw(t, label)
		out = append(out, k)
		n -= k
	}
	return out
}

// However ranges and extents are cut, a page read through the spans is the page
// that was written through others.
func TestSpansFindEveryByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 200).Draw(t, "payload")
		payload := make([]byte, n)
		_, _ = rand.Read(payload) // never fails
		arena := make([]byte, 2*n+64)
		var extents []enginesock.Extent
		at := int64(0)
		for _, k := range cut(t, n, "extent") {
			at += rapid.Int64Range(0, min(3, int64(len(arena))-at-n)).Draw(t, "gap")
			extents = append(extents, enginesock.Extent{Offset: at, Length: k})
			at += k
			if at+n > int64(len(arena)) {
				t.Skip("does not fit")
			}
		}
		var ranges []kvcache.Range
		off := int64(0)
		for _, k := range cut(t, n, "range") {
			ranges = append(ranges, kvcache.Range{Offset: off, Length: k})
			off += k
		}
		sp, err := spans(ranges, extents, int64(len(arena)))
		if err != nil {
			t.Fatal(err)
		}
		if got := each(sp, 0, payload, func(part []byte, a int64) { copy(arena[a:], part) }); got != n {
			t.Fatalf("wrote %d of %d bytes", got, n)
		}
		from := rapid.Int64Range(0, n-1).Draw(t, "from")
		page := make([]byte, rapid.Int64Range(1, n-from).Draw(t, "page"))
		if got := each(sp, from, page, func(part []byte, a int64) { copy(part, arena[a:]) }); got != int64(len(page)) {
			t.Fatalf("read %d of %d bytes", got, len(page))
		}
		if !bytes.Equal(page, payload[from:from+int64(len(page))]) {
			t.Fatal("other bytes came back")
		}
	})
}

func TestSpansRefuseWhatIsNotThere(t *testing.T) {
	for name, x := range map[string][]enginesock.Extent{
		"too short": {{Offset: 0, Length: 9}},
		"beyond":    {{Offset: 95, Length: 10}},
		"negative":  {{Offset: -1, Length: 10}},
		"empty":     {{Offset: 0, Length: 0}, {Offset: 0, Length: 10}},
		"overflow":  {{Offset: 1<<63 - 1, Length: 10}},
		"none":      nil,
	} {
		if sp, err := spans([]kvcache.Range{{Length: 10}}, x, 100); err == nil {
			t.Errorf("%s: %v", name, sp)
		}
	}
}
