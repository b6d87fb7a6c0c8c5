package kvd

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat/cases"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// announced is what a peer says of an engine.
func announced(t *testing.T, name string, fp kvcache.Fingerprint) wire.Engine {
	t.Helper()
	b, err := json.Marshal(fp)
	if err != nil {
		t.Fatal(err)
	}
	e := wire.Engine{Name: name, Ranks: uint16(fp.Ranks.Tensor), FingerprintJSON: string(b)}
	if _, err := hex.Decode(e.FingerprintHash[:], []byte(fp.Hash())); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestVerdictsAreTheTables: claims, offers and the status have, of the formats that
// peers announce, the verdict that everybody has.
func TestVerdictsAreTheTables(t *testing.T) {
	n := newNode(t, "p", nil)
	for _, c := range cases.All() {
		t.Run(c.Name, func(t *testing.T) {
			if c.Prefill.Ranks.Pipeline != 1 {
				if attribute, err := checkEngine(registration(n, "prefill", "prefill", c.Prefill)); attribute != "fingerprint" || !strings.Contains(err.Error(), "pipeline") {
					t.Errorf("%s %v", attribute, err)
				}
				return
			}
			far := &peerSession{s: &heard{node: "d"}, num: 7, node: "d", up: true}
			if err := n.d.own.call(t.Context(), func() {
				n.d.engines = map[string]*engine{"prefill": newEngine(registration(n, "prefill", "prefill", c.Prefill))}
				n.d.pairs = map[string]api.Pair{"main": {Name: "main", Options: c.Options, Prefill: []api.PeerEngine{{Node: "p", Engine: "prefill"}}, Decode: []api.PeerEngine{{Node: "d", Engine: "decode"}}}}
				n.d.peers = map[string]*peerSession{"d": far}
				n.d.learn(far, []wire.Engine{announced(t, "decode", c.Decode)})
				conv, code, why := n.d.mayLeave(far, &wire.Claim{SourceEngine: "prefill", ClaimantEngine: "decode"})
				status := n.d.compatibilityOf(n.d.engines["prefill"])
				if c.Class == kvcompat.Refused {
					if code != codeIncompatible || len(status.incompatible) != 1 || len(status.conversions) != 0 || !strings.Contains(status.incompatible[0], why) {
						t.Errorf("%s %q, status %+v", code, why, status)
					}
				} else {
					if code != "" || conv.verdict.Class != c.Class || !slices.Equal(cases.Named(conv.verdict), c.Attributes) || conv.c == nil {
						t.Errorf("%s %q, %+v", code, why, conv)
					}
					if len(status.incompatible) != 0 || len(status.conversions) != 1 || status.conversions[0].Class != c.Class {
						t.Errorf("%+v", status)
					}
				}
				n.d.engines, n.d.peers, n.d.pairs, n.d.compat = map[string]*engine{}, map[string]*peerSession{}, map[string]api.Pair{}, compatCache{}
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// What a peer announces is bounded, and need not be true.
func TestAnnouncementsAreNotTrusted(t *testing.T) {
	n := newNode(t, "p", nil)
	good := plain(2)
	change := func(c func(e *wire.Engine)) wire.Engine {
		e := announced(t, "decode", good)
		c(&e)
		return e
	}
	ranks := plain(65)
	for name, c := range map[string]struct {
		e  wire.Engine
		ok bool
	}{
		"as it is":       {change(func(*wire.Engine) {}), true},
		"another hash":   {change(func(e *wire.Engine) { e.FingerprintHash[0]++ }), false},
		"other ranks":    {change(func(e *wire.Engine) { e.Ranks = 3 }), false},
		"no name":        {change(func(e *wire.Engine) { e.Name = "../x" }), false},
		"no JSON":        {change(func(e *wire.Engine) { e.FingerprintJSON = "{" }), false},
		"unknown fields": {change(func(e *wire.Engine) { e.FingerprintJSON = strings.Replace(e.FingerprintJSON, "{", `{"x":1,`, 1) }), false},
		"too many ranks": {announced(t, "decode", ranks), false},
	} {
		ps := &peerSession{s: &heard{node: "d"}, node: "d", up: true}
		_ = n.d.own.call(t.Context(), func() { n.d.learn(ps, []wire.Engine{c.e}) })
		if _, ok := ps.known["decode"]; ok != c.ok {
			t.Errorf("%s: known %v", name, ok)
		}
	}
}

// A format that makes much of little costs its own conversion only so much.
func TestClaimsOutOfProportion(t *testing.T) {
	prefill := plain(1)
	padded := plain(1, func(fp *kvcache.Fingerprint) { fp.Storage.Padding = 1 << 20 })
	for _, c := range []struct {
		decode kvcache.Fingerprint
		ok     bool
	}{{plain(1, large), true}, {plain(1, bare(kvcache.FP32)), true}, {padded, false}} {
		const tokens = 10_000
		t1 := &sending{tokens: tokens}
		own, err := ownOf(&prefill, tokens)
		if err != nil {
			t.Fatal(err)
		}
		t1.ranks = []storedRank{{own: own[0]}}
		var cache converterCache
		conv, err := cache.get(formatOf(prefill), formatOf(c.decode))
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = (&conversion{to: formatOf(c.decode), c: conv}).view(nil, t1)
		if (err == nil) != c.ok {
			t.Errorf("padding %d: %v", c.decode.Storage.Padding, err)
		}
	}
}

// The machines get sets whose ranges neither overlap nor touch.
func TestAscending(t *testing.T) {
	got := transfer.Ascending([]kvcache.Range{{Offset: 0, Length: 5}, {Offset: 5, Length: 5}, {Offset: 12, Length: 0}, {Offset: 20, Length: 4}, {Offset: 22, Length: 1}})
	if !slices.Equal(got, transfer.Set{{Offset: 0, Length: 10}, {Offset: 20, Length: 4}}) {
		t.Error(got)
	}
}
