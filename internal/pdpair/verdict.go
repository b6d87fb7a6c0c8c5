package pdpair

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
)

// crossing is what happens to KV between one prefill and one decode engine.
type crossing struct {
	prefill, decode engineref.Ref
	verdict         kvcompat.Verdict
}

// what says in one line what is converted.
func (c crossing) what() string {
	if len(c.verdict.Steps) == 0 {
		return "none"
	}
	steps := make([]string, len(c.verdict.Steps))
	for i, s := range c.verdict.Steps {
		steps[i] = s.String()
	}
	return strings.Join(steps, ", ")
}

// losses names what the crossing does not preserve, a line each.
func (c crossing) losses() []string {
	var out []string
	for _, s := range c.verdict.Steps {
		if s.Class == kvcompat.Lossy {
			out = append(out, strings.TrimSuffix(fmt.Sprintf("%s: %s", s, s.Note), ": "))
		}
	}
	return out
}

// verdict asks kvcompat about prefill engine i and decode engine j: the function
// that the daemons ask, with the same options. While the options are unknown,
// only what no option allows is refused.
func (p pools) verdict(i, j int) (kvcompat.Verdict, []fault) {
	pe, de := p.prefill[i], p.decode[j]
	pf, err := kvcache.ParseFingerprint([]byte(pe.Fingerprint))
	if err != nil {
		return kvcompat.Verdict{}, []fault{{"prefill", i, "KV fingerprint cannot be read", fmt.Sprintf("%s: %s.", pe.ID(), err)}}
	}
	df, err := kvcache.ParseFingerprint([]byte(de.Fingerprint))
	if err != nil {
		return kvcompat.Verdict{}, []fault{{"decode", j, "KV fingerprint cannot be read", fmt.Sprintf("%s: %s.", de.ID(), err)}}
	}
	o := p.options
	if !p.optionsKnown {
		o = kvcompat.Options{AllowLossy: true, AllowReleases: true}
	}
	v := kvcompat.Check(pf, df, o)
	if v.Allowed() {
		return v, nil
	}
	lines := make([]string, len(v.Reasons))
	for n, r := range v.Reasons {
		lines[n] = "  - " + r.String()
	}
	at, index := "prefill", i
	if ownFault(df, o, v) && !ownFault(pf, o, v) {
		at, index = "decode", j
	}
	return v, []fault{{at, index, "Engines cannot exchange KV", fmt.Sprintf(
		"The KV that %s writes cannot be read by %s:\n\n%s", pe.ID(), de.ID(), strings.Join(lines, "\n"))}}
}

// ownFault reports whether everything that v refuses is refused of an engine with another one like it: then it is that
// engine that has to change.
func ownFault(f kvcache.Fingerprint, o kvcompat.Options, v kvcompat.Verdict) bool {
	own := kvcompat.Check(f, f, o).Reasons
	for _, r := range v.Reasons {
		if !slices.ContainsFunc(own, func(x kvcompat.Reason) bool { return x.Attribute == r.Attribute && x.Why == r.Why }) {
			return false
		}
	}
	return true
}

// crossings gives every prefill engine with every decode engine, in order. ok is
// false while something that they depend on is unknown. The pools have no faults.
func (p pools) crossings() (cs []crossing, ok bool) {
	if !p.known() || !p.optionsKnown {
		return nil, false
	}
	for i, pe := range p.prefill {
		for j, de := range p.decode {
			v, _ := p.verdict(i, j)
			cs = append(cs, crossing{pe, de, v})
		}
	}
	return cs, true
}

// lossText tells what a pair loses; empty if every value arrives as it was.
func lossText(cs []crossing) string {
	var b strings.Builder
	for _, c := range cs {
		if c.verdict.Class != kvcompat.Lossy {
			continue
		}
		fmt.Fprintf(&b, "\n\nFrom %s to %s:", c.prefill.ID(), c.decode.ID())
		for _, l := range c.losses() {
			b.WriteString("\n  - " + l)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "allow_lossy lets KV be converted although values change, so that answers may differ from those of the decode engine alone. " +
		"Changed values are counted for each transfer." + b.String()
}
