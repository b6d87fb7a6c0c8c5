package formats

import (
	"fmt"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// Claim is what is claimed of the answers of a pair.
type Claim string

// Claims.
const (
	// ClaimBits means that tokens and the hashes of all logits are those of the decode
	// engine alone: both engines keep equal values, in whatever form.
	ClaimBits Claim = "bits"
	// ClaimRecites means that the answer is the one that reciting weights are known to
	// give. It is what is left where the engines round to other values, so that decode
	// alone has other logits.
	ClaimRecites Claim = "recites"
)

// Pair is a prefill and a decode format between which KV may cross without
// allow_lossy.
type Pair struct {
	Set, Model      string
	Prefill, Decode Format
	Class           kvcompat.Class
	Conversion      string
	Claim           Claim
}

// ID tells pairs apart. A pair of formats may be run with two models.
func (p *Pair) ID() string { return id(p.Set, p.Model, p.Prefill.Name, p.Decode.Name) }

func id(set, model, prefill, decode string) string {
	return fmt.Sprintf("%s %s %s → %s", set, model, prefill, decode)
}

// Default reports whether it is the pair of formats that a fleet of both vendors has.
func (p *Pair) Default() bool {
	return p.Set == DefaultSet && p.Prefill.Name == DefaultPrefill && p.Decode.Name == DefaultDecode
}

// Refusal is a pair of formats between which no KV may cross, unless losses are
// allowed.
type Refusal struct {
	Set, Model      string
	Prefill, Decode Format
	Verdict         kvcompat.Verdict
}

// ID is as that of a [Pair].
func (r *Refusal) ID() string { return id(r.Set, r.Model, r.Prefill.Name, r.Decode.Name) }

// Plan is what a run has to do.
type Plan struct {
	Pairs    []Pair
	Refusals []Refusal
}

// NewPlan compares all formats of each set.
func NewPlan(sets []Set) (Plan, error) {
	var out Plan
	for _, s := range sets {
		for _, p := range s.Formats {
			for _, d := range s.Formats {
				if err := out.add(s, p, d); err != nil {
					return Plan{}, fmt.Errorf("%s, %s and %s: %w", s.Name, p.Name, d.Name, err)
				}
			}
		}
	}
	return out, nil
}

func (out *Plan) add(s Set, p, d Format) error {
	v, err := verdict(s.Seeded, p, d)
	if err != nil {
		return err
	}
	if !v.Allowed() {
		out.Refusals = append(out.Refusals, Refusal{s.Name, s.Seeded, p, d, v})
		return nil
	}
	pair := Pair{s.Name, s.Seeded, p, d, v.Class, v.Conversion(), ClaimBits}
	bits := SameValues(p, d)
	if bits {
		out.Pairs = append(out.Pairs, pair)
	}
	if p.DType == d.DType || s.Reciting == "" && bits {
		return nil
	}
	if v, err = verdict(s.Reciting, p, d); err != nil {
		return err
	}
	pair.Model, pair.Claim, pair.Class, pair.Conversion = s.Reciting, ClaimRecites, v.Class, v.Conversion()
	out.Pairs = append(out.Pairs, pair)
	return nil
}

func verdict(model string, p, d Format) (kvcompat.Verdict, error) {
	m, err := refmodel.Lookup(model)
	if err != nil {
		return kvcompat.Verdict{}, err
	}
	pf, err := m.Fingerprint(refmodel.DefaultSeed, p.Format)
	if err != nil {
		return kvcompat.Verdict{}, err
	}
	df, err := m.Fingerprint(refmodel.DefaultSeed, d.Format)
	if err != nil {
		return kvcompat.Verdict{}, err
	}
	return kvcompat.Check(pf, df, kvcompat.Options{}), nil
}

// SameValues reports whether two engines keep the same numbers of the same keys and
// values. With the checkpoint's factors, an fnuz engine doubles them and keeps
// elements half as large, which is the same grid; and the reference engine's values
// reach the end of neither range.
func SameValues(p, d Format) bool {
	if p.Scales != d.Scales {
		return false
	}
	if p.Scales != kvcache.ScaleNone {
		return p.DType.FP8() && d.DType.FP8()
	}
	return p.DType == d.DType
}
