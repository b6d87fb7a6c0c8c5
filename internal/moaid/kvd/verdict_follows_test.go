package kvd

import (
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
)

// TestVerdictFollowsTheEngine: over a session that stays up, both daemons judge anew when an engine comes back as another.
func TestVerdictFollowsTheEngine(t *testing.T) {
	p, d, pe, de := formats(t, plain(1), plain(1), kvcompat.Options{})
	const tokens = 40
	for _, c := range []struct {
		what string
		fp   kvcache.Fingerprint
	}{
		{"other weights", plain(1, func(fp *kvcache.Fingerprint) { fp.Model.Weights = "other" })},
		{"other blocks", plain(1, large)},
		{"as before", plain(1)},
	} {
		pe.stop()
		reg := registration(p, "prefill", "prefill", c.fp)
		must[*api.EngineStatus](t, "engine")(p.c.PutEngine(t.Context(), reg))
		pe.fp = c.fp
		pe.start(p, "prefill")
		if st := must[*api.EngineStatus](t, "engine")(p.c.GetEngine(t.Context(), "prefill", patience)); !st.Ready {
			t.Fatalf("%s: not ready: %s", c.what, st.Reason)
		}
		want := kvcompat.Check(c.fp, plain(1), kvcompat.Options{})
		for n, engine := range map[*node]string{p: "prefill", d: "decode"} {
			eventually(t, c.what+": the verdict of "+n.name, func() bool {
				st := must[*api.EngineStatus](t, "engine")(n.c.GetEngine(t.Context(), engine, 0))
				if !want.Allowed() {
					return len(st.Conversions) == 0 && len(st.Incompatible) == 1 && strings.Contains(st.Incompatible[0], want.Reasons[0].Attribute)
				}
				return len(st.Incompatible) == 0 && len(st.Conversions) == 1 && st.Conversions[0].Text == want.Conversion()
			})
		}
		id, hash := newID(), tokenHash(tokens, "a")
		pe.prefill(id, tokens, hash, false)
		de.claim(id, tokens, hash, 0)
		if !want.Allowed() {
			if v := de.verdict(id); v.Code != enginesock.FailIncompatible {
				t.Errorf("%s: claims end with %+v", c.what, v)
			}
			continue
		}
		pe.storeCells(id, tokens, mixed(id))()
		if v := de.verdict(id); v.Code != "" {
			t.Errorf("%s: claims end with %+v", c.what, v)
		}
	}
}
