package lab

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	able := func(context.Context) error { return nil }
	unable := func(context.Context) error { return &MissingError{"no such thing here"} }
	tiers := []Tier{{Name: "A", What: "the best", Available: unable}, {Name: "B", What: "good", Available: able}, {Name: "C", What: "poor", Available: able}}
	for name, c := range map[string]struct {
		tiers            []Tier
		recorded, forced string
		want, err        string
	}{
		"the best that can be":      {tiers, "", "", "B", ""},
		"forced":                    {tiers, "", "C", "C", ""},
		"forced, but cannot be":     {tiers, "", "A", "", "tier A (the best): no such thing here"},
		"no such tier":              {tiers, "", "X", "", "MOAI_LAB_TIER=X is none of A, B, C"},
		"a lab keeps its tier":      {tiers, "C", "", "C", ""},
		"also one that cannot be":   {tiers, "A", "", "A", ""},
		"there and forced":          {tiers, "C", "C", "C", ""},
		"there, other one forced":   {tiers, "C", "B", "", "take it down first"},
		"there, of an unknown tier": {tiers, "X", "", "", `tier "X", which is unknown`},
		"none can be":               {tiers[:1], "", "", "", "no lab can be made on this machine\n  tier A (the best): no such thing here"},
	} {
		got, err := choose(t.Context(), c.tiers, c.recorded, c.forced)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || got.Name != c.want {
			t.Errorf("%s: tier %q, %v", name, got.Name, err)
		}
	}
	got, err := choose(t.Context(), tiers, "", "")
	if want := "tier B: good\n  not A (the best): no such thing here"; err != nil || got.String() != want {
		t.Errorf("got %q, %v", got, err)
	}
	_, err = choose(t.Context(), tiers[:1], "", "")
	var missing *MissingError
	if !errors.As(err, &missing) {
		t.Errorf("%v is no MissingError", err)
	}
}

func TestRecord(t *testing.T) {
	c := Config{Dir: t.TempDir(), Name: "a"}
	if got := recordedTier(c); got != "" {
		t.Errorf("before: %q", got)
	}
	if err := c.Record(Tier{Name: "G"}); err != nil {
		t.Fatal(err)
	}
	if got := recordedTier(c); got != "G" {
		t.Errorf("after: %q", got)
	}
	if err := os.RemoveAll(c.tierFile()); err != nil {
		t.Fatal(err)
	}
}
