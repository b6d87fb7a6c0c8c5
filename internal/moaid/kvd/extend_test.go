package kvd

import (
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
)

// A claim that is extended, while it is fetched and when it is ready, has in the end
// every element in its place, and each byte has travelled once.
func TestExtendedClaimsOfUnlikeFormats(t *testing.T) {
	const tokens = 200
	for name, c := range unlike {
		t.Run(name, func(t *testing.T) {
			p, d, pe, de := formats(t, c.prefill, c.decode, kvcompat.Options{})
			id, hash := newID(), tokenHash(tokens, "a")
			pe.prefill(id, tokens, hash, false)
			de.claim(id, tokens, hash, 150)
			late := pe.storeCells(id, tokens, mixed(id))
			d.waitState(id, "receiving")
			de.claim(id, tokens, hash, 70)
			late()
			var v enginesock.ClaimState
			from := func(n int) {
				t.Helper()
				eventually(t, "the extended claim is ready", func() bool {
					v = de.verdict(id)
					if v.Verdict != enginesock.Ready {
						t.Fatalf("%+v", v)
					}
					return v.FromToken == n
				})
				if _, err := de.readCells(id, tokens, v, mixed(id)); err != nil {
					t.Fatal(err)
				}
			}
			from(70)
			de.claim(id, tokens, hash, 0)
			from(0)
			if n, err := de.readCells(id, tokens, v, mixed(id)); err != nil || n != elements(de, tokens) {
				t.Fatalf("%d of %d elements: %v", n, elements(de, tokens), err)
			}
			de.load(id, true)
			if end := pe.released(id); end.Outcome != enginesock.Committed {
				t.Fatalf("sender ended %+v", end)
			}
			want := de.fp.WireBytes(must[kvcache.Payload](t, "payload")(de.fp.PayloadFor(tokens)), 0)
			if got := d.waitState(id, "committed"); got.BytesMoved != want {
				t.Errorf("%d bytes travelled, geometry gives %d", got.BytesMoved, want)
			}
			p.noPages()
			d.noPages()
		})
	}
}
