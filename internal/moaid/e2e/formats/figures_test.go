package formats

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// smallPlan is of the default pair with both claims, another pair, and what is refused.
func smallPlan(t *testing.T) Plan {
	t.Helper()
	plan, err := NewPlan(few())
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// smallNeed is little, so that each row matters.
func smallNeed() Required {
	return Required{Prompts: 2, DefaultPrompts: 3, WrongDefault: 3, Damaged: 2, Lossy: 2, Ways: 2, DamagedPairs: [][2]string{{DefaultPrefill, DefaultDecode}}}
}

// goodRun is the rows of a run as they should be.
func goodRun(plan Plan, need Required) []Row {
	var rows []Row
	answer := func(kind Kind, p *Pair, n int) Row {
		return Row{Kind: kind, Set: p.Set, Model: p.Model, Prefill: p.Prefill.Name, Decode: p.Decode.Name, Claim: p.Claim, PromptTokens: 10 + n,
			Want: []int{1, 2}, Got: []int{1, 2}, WantLogits: []string{"a", "b"}, GotLogits: []string{"a", "b"}, Computed: 1, Bytes: 64, BytesExpected: 64,
			Expected: p.Conversion, Said: p.Conversion}
	}
	spoilt := func(kind Kind, p *Pair, n int) Row {
		r := answer(kind, p, n)
		r.Got, r.GotLogits = []int{3, 4}, []string{"c", "d"}
		return r
	}
	for i := range plan.Pairs {
		p := &plan.Pairs[i]
		rows = append(rows, Row{Kind: KindVerdict, Set: p.Set, Model: p.Model, Prefill: p.Prefill.Name, Decode: p.Decode.Name, Expected: "exact: none", Said: "exact: none"})
		n, bad := need.Prompts, 1
		if p.Default() {
			n, bad = need.DefaultPrompts, need.WrongDefault
		}
		for k := range n {
			rows = append(rows, answer(KindPlain, p, k))
		}
		for k := range bad {
			rows = append(rows, spoilt(KindWrong, p, k))
		}
		if p.Default() && p.Claim == ClaimBits {
			for k := range need.Damaged {
				rows = append(rows, spoilt(KindFlip, p, k), spoilt(KindSwap, p, k), spoilt(KindNoop, p, k))
			}
			silent := answer(KindSilent, p, 0)
			silent.Computed, silent.Bytes = silent.PromptTokens, 0
			rows = append(rows, silent)
		}
	}
	for i := range plan.Refusals {
		r := &plan.Refusals[i]
		rows = append(rows, Row{Kind: KindVerdict, Set: r.Set, Model: r.Model, Prefill: r.Prefill.Name, Decode: r.Decode.Name, Expected: "no", Said: "no"})
	}
	recomputed := func(kind Kind, end string) Row {
		return Row{Kind: kind, Set: "s", Model: "m", Prefill: "p", Decode: "d", Claim: ClaimBits, PromptTokens: 9, Computed: 9, Want: []int{1}, Got: []int{1}, End: end, BytesExpected: 64}
	}
	rows = append(rows, recomputed(KindRefused, "aborted: incompatible"), recomputed(KindInexact, "aborted: inexact"))
	for _, d := range []string{"d", "e"} {
		p := Pair{Set: PoolsSet, Model: "m", Prefill: Format{Name: "p"}, Decode: Format{Name: d}, Conversion: "none", Claim: ClaimBits}
		rows = append(rows, answer(KindPlain, &p, 0), answer(KindPlain, &p, 1))
		no := recomputed(KindRefused, "aborted: incompatible")
		no.Set, no.Decode = "lossy", d
		rows = append(rows, no)
		rows = append(rows, Row{Kind: KindLossy, Set: "lossy", Model: "m", Prefill: "p", Decode: d, PromptTokens: 9, Want: []int{1}, Got: []int{1}, Computed: 1,
			Bytes: 64, BytesExpected: 64, Expected: "x", Said: "x", Rounded: 3, MaxError: 0.5, MeanError: 0.25})
	}
	return rows
}

func TestFiguresOfAGoodRun(t *testing.T) {
	plan, need := smallPlan(t), smallNeed()
	rows := goodRun(plan, need)
	var file bytes.Buffer
	for i := range rows {
		if err := WriteRow(&file, &rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	read, err := ReadRows(&file)
	if err != nil {
		t.Fatal(err)
	}
	f := Compute(plan, read, need)
	if len(f.Problems) != 0 || f.Mismatches != 0 || !f.ControlsOK || f.Pairs != 8 || f.Refused != len(plan.Refusals) {
		t.Errorf("%+v", f)
	}
	if len(f.Lossy) != 2 || f.Lossy[0].Rounded != 3 || f.Lossy[0].MaxError != 0.5 || f.Lossy[0].MeanError != 0.25 || f.Lossy[0].SameToken != 1 {
		t.Errorf("%+v", f.Lossy)
	}
	if _, err := ReadRows(strings.NewReader(`{"kind":"plain","surprise":1}`)); err == nil {
		t.Error("a row that is not understood is read")
	}
}

// TestFiguresBite: each thing that can be wrong with a run is found, and told as what it is.
func TestFiguresBite(t *testing.T) {
	plan, need := smallPlan(t), smallNeed()
	first := func(kind Kind) func([]Row) *Row {
		return func(rows []Row) *Row {
			i := slices.IndexFunc(rows, func(r Row) bool { return r.Kind == kind })
			if i < 0 {
				t.Fatalf("no row of kind %s", kind)
			}
			return &rows[i]
		}
	}
	without := func(kind Kind) func([]Row) []Row {
		return func(rows []Row) []Row {
			i := slices.IndexFunc(rows, func(r Row) bool { return r.Kind == kind })
			return slices.Delete(rows, i, i+1)
		}
	}
	none := func(kind Kind) func([]Row) []Row {
		return func(rows []Row) []Row { return slices.DeleteFunc(rows, func(r Row) bool { return r.Kind == kind }) }
	}
	change := func(kind Kind, f func(*Row)) func([]Row) []Row {
		return func(rows []Row) []Row {
			f(first(kind)(rows))
			return rows
		}
	}
	same := func(r *Row) { r.Got, r.GotLogits = r.Want, r.WantLogits }
	mismatches := map[string]func([]Row) []Row{
		"other tokens":        change(KindPlain, func(r *Row) { r.Got = []int{1, 3} }),
		"fewer tokens":        change(KindPlain, func(r *Row) { r.Got, r.GotLogits = r.Got[:1], r.GotLogits[:1] }),
		"no tokens":           change(KindPlain, func(r *Row) { r.Got, r.Want = nil, nil }),
		"other logits":        change(KindPlain, func(r *Row) { r.GotLogits = []string{"a", "c"} }),
		"no logits":           change(KindPlain, func(r *Row) { r.GotLogits, r.WantLogits = nil, nil }),
		"no claim":            change(KindPlain, func(r *Row) { r.Claim = "" }),
		"silent recompute":    change(KindPlain, func(r *Row) { r.Computed = 10 }),
		"negative sum":        change(KindPlain, func(r *Row) { r.Computed = -1 }),
		"no bytes":            change(KindPlain, func(r *Row) { r.Bytes = 0 }),
		"too many bytes":      change(KindPlain, func(r *Row) { r.Bytes++ }),
		"nothing expected":    change(KindPlain, func(r *Row) { r.Bytes, r.BytesExpected = 0, 0 }),
		"another conversion":  change(KindPlain, func(r *Row) { r.Said = "something else" }),
		"a value was clipped": change(KindPlain, func(r *Row) { r.Clipped = 1 }),
		"a value was rounded": change(KindPlain, func(r *Row) { r.Rounded = 1 }),
		"transfer ended":      change(KindPlain, func(r *Row) { r.End = "aborted: lease" }),
		"an error":            change(KindPlain, func(r *Row) { r.Error = "500" }),
		"a prompt too few":    without(KindPlain),
		"another verdict":     change(KindVerdict, func(r *Row) { r.Said = "refused" }),
		"no verdict":          without(KindVerdict),
		"no verdicts":         none(KindVerdict),
		"a way not run": func(rows []Row) []Row {
			return slices.DeleteFunc(rows, func(r Row) bool { return r.Set == PoolsSet && r.Decode == "e" })
		},
		"no pools": func(rows []Row) []Row { return slices.DeleteFunc(rows, func(r Row) bool { return r.Set == PoolsSet }) },
		"a way too little": func(rows []Row) []Row {
			i := slices.IndexFunc(rows, func(r Row) bool { return r.Set == PoolsSet })
			return slices.Delete(rows, i, i+1)
		},
		"unknown kind":         change(KindPlain, func(r *Row) { r.Kind = "odd" }),
		"lossy, recomputed":    change(KindLossy, func(r *Row) { r.Computed = 9 }),
		"lossy, other bytes":   change(KindLossy, func(r *Row) { r.Bytes = 0 }),
		"lossy, as it was not": change(KindLossy, func(r *Row) { r.Said = "none" }),
		"lossy, ended":         change(KindLossy, func(r *Row) { r.End = "aborted" }),
	}
	controls := map[string]func([]Row) []Row{
		"wrong weights change nothing": change(KindWrong, same),
		"wrong weights not run":        without(KindWrong),
		"wrong weights failed":         change(KindWrong, func(r *Row) { r.Error = "500" }),
		"a flip changes nothing":       change(KindFlip, same),
		"no flip":                      none(KindFlip),
		"a flip too few":               without(KindFlip),
		"a swap changes nothing":       change(KindSwap, same),
		"no swap":                      none(KindSwap),
		"a no-op passes":               change(KindNoop, same),
		"no no-op":                     none(KindNoop),
		"a recompute passes":           change(KindSilent, func(r *Row) { r.Computed, r.Bytes = 1, r.BytesExpected }),
		"no recompute":                 none(KindSilent),
		"a refused pair transfers":     change(KindRefused, func(r *Row) { r.Computed, r.Bytes, r.End = 1, 64, "" }),
		"a refused pair sends bytes":   change(KindRefused, func(r *Row) { r.Bytes = 1 }),
		"a refused pair answers wrong": change(KindRefused, func(r *Row) { r.Got = []int{2} }),
		"no refused pair":              none(KindRefused),
		"a lossy pair is not refused": func(rows []Row) []Row {
			return slices.DeleteFunc(rows, func(r Row) bool { return r.Kind == KindRefused && r.Set == "lossy" && r.Decode == "e" })
		},
		"an inexact transfer commits": change(KindInexact, func(r *Row) { r.Computed, r.End = 1, "" }),
		"an inexact answer is wrong":  change(KindInexact, func(r *Row) { r.Got = []int{2} }),
		"no inexact transfer":         none(KindInexact),
		"no lossy pair":               none(KindLossy),
		"a lossy pair too few":        without(KindLossy),
		"nothing was lost": func(rows []Row) []Row {
			for i := range rows {
				rows[i].Rounded = 0
			}
			return rows
		},
	}
	for name, spoil := range mismatches {
		if f := Compute(plan, spoil(goodRun(plan, need)), need); f.Mismatches == 0 || len(f.Problems) == 0 {
			t.Errorf("%s is no mismatch", name)
		}
	}
	for name, spoil := range controls {
		if f := Compute(plan, spoil(goodRun(plan, need)), need); f.ControlsOK || len(f.Problems) == 0 {
			t.Errorf("%s: the controls are said to be right", name)
		}
	}
	if f := Compute(Plan{}, nil, need); f.Mismatches == 0 || f.ControlsOK {
		t.Error("an empty run passes")
	}
}

// One prompt of fifty may have the same answer by wrong weights: decode reads nothing
// of a prompt of one token.
func TestOneOfFiftyIsSpared(t *testing.T) {
	plan, need := smallPlan(t), smallNeed()
	need.WrongDefault = 50
	for spared, ok := range []bool{true, true, false} {
		rows := goodRun(plan, need)
		n := 0
		for i := range rows {
			if r := &rows[i]; r.Kind == KindWrong && r.Claim == ClaimBits && r.Prefill == DefaultPrefill && r.Decode == DefaultDecode && n < spared {
				r.Got, n = r.Want, n+1
			}
		}
		if f := Compute(plan, rows, need); f.ControlsOK != ok {
			t.Errorf("%d of 50 the same: %v", spared, fmt.Sprint(f.Problems))
		}
	}
}
