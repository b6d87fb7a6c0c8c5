package kvcompat

import (
	"fmt"
	"strings"
)

// Class is what may happen between two caches.
type Class string

// Classes of verdicts.
const (
	// Exact means that decode reads what prefill wrote, perhaps after a conversion
	// that preserves every value.
	Exact Class = "exact"
	// Guarded means that the conversion preserves every value that is in the range
	// of both formats. A transfer that meets another value ends without a commit.
	Guarded Class = "guarded"
	// Lossy means that the conversion changes values, which needs
	// [Options.AllowLossy].
	Lossy Class = "lossy"
	// Refused means that no KV may cross.
	Refused Class = "refused"
)

// Options are what an operator allows beyond what is exact.
type Options struct {
	AllowLossy    bool `json:"allow_lossy,omitempty"`    // conversions that change values
	AllowReleases bool `json:"allow_releases,omitempty"` // engines of different releases
}

// Reason is one way in which two caches differ so that no KV may cross.
type Reason struct {
	Attribute string `json:"attribute"` // of the fingerprint, e.g. "storage.dtype"
	Prefill   string `json:"prefill"`   // value on the prefill engine
	Decode    string `json:"decode"`    // value on the decode engine; empty if only one engine is looked at
	Why       string `json:"why"`       // what would go wrong
	Fix       string `json:"fix"`       // what the operator can change
}

func (r Reason) String() string {
	if r.Decode == "" { // about one engine's configuration
		return fmt.Sprintf("%s is %s: %s. %s.", r.Attribute, r.Prefill, r.Why, r.Fix)
	}
	if r.Prefill == r.Decode {
		return fmt.Sprintf("%s is %s on both engines: %s. %s.", r.Attribute, r.Prefill, r.Why, r.Fix)
	}
	return fmt.Sprintf("%s is %s on the prefill engine and %s on the decode engine: %s. %s.", r.Attribute, r.Prefill, r.Decode, r.Why, r.Fix)
}

// Step is one thing that a conversion changes.
type Step struct {
	Attribute string `json:"attribute"` // of the fingerprint
	From      string `json:"from"`      // on the prefill engine
	To        string `json:"to"`        // on the decode engine
	Class     Class  `json:"class"`     // Exact, Guarded or Lossy
	Note      string `json:"note"`      // what is done, for the operator
}

func (s Step) String() string { return fmt.Sprintf("%s %s → %s", s.Attribute, s.From, s.To) }

// Verdict is the answer to "may decode read what prefill wrote".
type Verdict struct {
	Class   Class    `json:"class"`
	Steps   []Step   `json:"steps,omitempty"`   // of the conversion; none if the payloads are the same bytes
	Reasons []Reason `json:"reasons,omitempty"` // why not; empty unless Refused
}

// Allowed reports whether KV may cross.
func (v Verdict) Allowed() bool { return v.Class != Refused }

// Err is nil if KV may cross and otherwise names every reason.
func (v Verdict) Err() error {
	if v.Allowed() {
		return nil
	}
	parts := make([]string, len(v.Reasons))
	for i, r := range v.Reasons {
		parts[i] = r.String()
	}
	return fmt.Errorf("incompatible KV caches: %s", strings.Join(parts, " "))
}

// Conversion says in one line what is converted: "none" for equal formats.
func (v Verdict) Conversion() string {
	if len(v.Steps) == 0 {
		return "none"
	}
	parts := make([]string, len(v.Steps))
	for i, s := range v.Steps {
		parts[i] = s.String()
	}
	return strings.Join(parts, ", ") + " (" + string(v.Class) + ")"
}
