package kvcompat_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat/cases"
)

func TestVerdicts(t *testing.T) {
	names := map[string]bool{}
	for _, c := range cases.All() {
		if names[c.Name] {
			t.Errorf("%s is twice in the table", c.Name)
		}
		names[c.Name] = true
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Prefill.Validate(); err != nil {
				t.Fatal(err)
			}
			if err := c.Decode.Validate(); err != nil {
				t.Fatal(err)
			}
			v := kvcompat.Check(c.Prefill, c.Decode, c.Options)
			if v.Class != c.Class || !slices.Equal(cases.Named(v), c.Attributes) {
				t.Errorf("got %s %v, want %s %v: %v", v.Class, cases.Named(v), c.Class, c.Attributes, v.Err())
			}
			for _, r := range v.Reasons {
				if r.Prefill == "" || r.Decode == "" || r.Why == "" || r.Fix == "" || strings.HasSuffix(r.Why, ".") || strings.HasSuffix(r.Fix, ".") {
					t.Errorf("an operator cannot act on %+v", r)
				}
			}
			for _, s := range v.Steps {
				if s.From == "" || s.To == "" || s.From == s.To || s.Note == "" {
					t.Errorf("a step says too little: %+v", s)
				}
			}
			if v.Allowed() != (v.Err() == nil) || v.Allowed() == (len(v.Reasons) > 0) {
				t.Errorf("allowed %t with %v", v.Allowed(), v.Err())
			}
		})
	}
}

// TestLossSaysHow: what needs allow_lossy says so, and what is lost.
func TestLossSaysHow(t *testing.T) {
	v := kvcompat.Check(cases.MI300X(), cases.H100(), kvcompat.Options{})
	if err := v.Err(); err == nil || !strings.Contains(err.Error(), "allow_lossy = true") || !strings.Contains(err.Error(), "±240") {
		t.Errorf("%v", err)
	}
}
