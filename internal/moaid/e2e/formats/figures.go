package formats

import (
	"fmt"
	"slices"
)

// Figures are what a run comes to.
type Figures struct {
	Pairs      int      `json:"pairs"`      // pairs of formats that are exact or guarded
	Prompts    int      `json:"prompts"`    // answered by them
	Mismatches int      `json:"mismatches"` // prompts with faults, verdicts that differ, and what is missing
	ControlsOK bool     `json:"controls_ok"`
	Controls   Controls `json:"controls"`
	Refused    int      `json:"refused"` // pairs of formats that both daemons refuse
	Lossy      []Lossy  `json:"lossy"`
	Seconds    float64  `json:"seconds"`

	// Problems says what is wrong, in words.
	Problems []string `json:"-"`
}

// Controls are the runs without which equal answers would prove nothing.
type Controls struct {
	Wrong        Share `json:"wrong_weights"`         // prompts that wrong weights change, over all pairs
	WrongDefault Share `json:"wrong_weights_default"` // of these, over the default pair
	Flip         Share `json:"flipped_bit"`           // logits that a flipped bit changes
	Swap         Share `json:"swapped_page"`          // answers that a swapped page changes
	Noop         Share `json:"noop_detected"`         // transfers of nothing that are noticed
	Silent       Share `json:"recompute_detected"`    // prompts that decode computed itself, noticed
	Refused      Share `json:"refused"`               // prompts of refused pairs that are computed by decode
	Inexact      Share `json:"inexact"`               // transfers given up since a value has no equal
}

// Share is how many of how many.
type Share struct {
	Of  int `json:"of"`
	Are int `json:"are"`
}

func (s *Share) add(yes bool) {
	s.Of++
	if yes {
		s.Are++
	}
}

// Lossy is what a pair loses that may lose values. It is never called equal.
type Lossy struct {
	Pair      string  `json:"pair"`
	Prompts   int     `json:"prompts"`
	Clipped   int64   `json:"values_clipped"`
	Rounded   int64   `json:"values_rounded"`
	MaxError  float64 `json:"logit_error_max"`  // over all prompts and logits
	MeanError float64 `json:"logit_error_mean"` // mean of the prompts' means
	SameToken int     `json:"first_token_same"` // prompts
}

// Required is how much a run has to have at least.
type Required struct {
	Prompts        int // of each pair
	DefaultPrompts int // of the default pair
	WrongDefault   int // prompts with wrong weights on the default pair
	Damaged        int // flipped bits of each of the damaged pairs; swapped pages are half as many
	Lossy          int // lossy pairs
	Ways           int // from a prefill to a decode engine, of the pools
	// DamagedPairs are the pairs of formats of the default set to which damage is done.
	DamagedPairs [][2]string
}

// PoolsSet is the set of rows of a pair of pools: two engines on each node, all of them
// busy at once.
const PoolsSet = "pools"

// CI is what continuous integration requires; 50 prompts a pair are the full run.
func CI(prompts int) Required {
	return Required{
		Prompts: prompts, DefaultPrompts: 50, WrongDefault: 50, Damaged: 40, Lossy: 5, Ways: 4,
		DamagedPairs: [][2]string{{DefaultPrefill, DefaultDecode}, {"h100-tp2", "mi300x-tp4"}},
	}
}

// Compute gives the figures of a run's rows. What the plan has and the rows have not
// is a mismatch; so is a control that was not run.
func Compute(plan Plan, rows []Row, need Required) Figures {
	c := counting{plan: plan, need: need, plain: map[string]int{}, verdicts: map[string]bool{}, wrong: map[string]Share{}, refused: map[string]bool{}, ways: map[string]int{}, damaged: map[[3]string]Share{}}
	c.f.Lossy = []Lossy{}
	for i := range rows {
		c.row(&rows[i])
	}
	c.missing()
	c.controls()
	return c.f
}

type counting struct {
	plan     Plan
	need     Required
	f        Figures
	bad      bool                // a control failed
	plain    map[string]int      // prompts by pair
	verdicts map[string]bool     // pairs of formats of which both daemons said what is right
	wrong    map[string]Share    // by pair
	refused  map[string]bool     // pairs of which a prompt was computed by decode
	ways     map[string]int      // prompts by pair, of pools
	damaged  map[[3]string]Share // by kind and formats
}

func (c *counting) mismatch(format string, args ...any) {
	c.f.Mismatches++
	c.f.Problems = append(c.f.Problems, fmt.Sprintf(format, args...))
}

func (c *counting) control(ok bool, format string, args ...any) {
	if !ok {
		c.bad = true
		c.f.Problems = append(c.f.Problems, "control: "+fmt.Sprintf(format, args...))
	}
}

func (c *counting) row(r *Row) {
	k := &c.f.Controls
	differs := r.Error == "" && len(r.Got) > 0 && !slices.Equal(r.Got, r.Want)
	switch r.Kind {
	case KindVerdict:
		c.verdict(r)
	case KindPlain:
		c.f.Prompts++
		c.plain[r.ID()]++
		if r.Set == PoolsSet {
			c.ways[r.ID()]++
		}
		if faults := r.Faults(); len(faults) > 0 {
			c.mismatch("%s, prompt of %d tokens: %v", r.ID(), r.PromptTokens, faults)
		}
	case KindWrong:
		s := c.wrong[r.ID()]
		s.add(differs)
		c.wrong[r.ID()] = s
		k.Wrong.add(differs)
		if r.Set == DefaultSet && r.Prefill == DefaultPrefill && r.Decode == DefaultDecode && r.Claim == ClaimBits {
			k.WrongDefault.add(differs)
		}
		c.control(r.Error == "", "%s, wrong weights: %s", r.ID(), r.Error)
	case KindFlip:
		changed := r.Error == "" && len(r.GotLogits) > 0 && !slices.Equal(r.GotLogits, r.WantLogits)
		k.Flip.add(changed)
		c.damage(r, changed)
	case KindSwap:
		k.Swap.add(differs)
		c.damage(r, differs)
	case KindNoop:
		k.Noop.add(r.Error == "" && len(r.Faults()) > 0)
		c.damage(r, r.Error == "" && len(r.Faults()) > 0)
	case KindSilent:
		k.Silent.add(r.Error == "" && slices.Equal(r.Got, r.Want) && len(r.Faults()) > 0)
	case KindRefused:
		faults := r.recomputed("incompatible")
		if r.Bytes != 0 {
			faults = append(faults, fmt.Sprintf("%d bytes crossed", r.Bytes))
		}
		k.Refused.add(len(faults) == 0)
		c.refused[r.ID()] = c.refused[r.ID()] || len(faults) == 0
		c.control(len(faults) == 0, "%s, refused: %v", r.ID(), faults)
	case KindInexact:
		faults := r.recomputed("inexact")
		k.Inexact.add(len(faults) == 0)
		c.control(len(faults) == 0, "%s, inexact: %v", r.ID(), faults)
	case KindLossy:
		c.lossy(r)
	default:
		c.mismatch("a row of unknown kind %q", r.Kind)
	}
}

func (c *counting) verdict(r *Row) {
	if r.Error != "" || r.Expected == "" || r.Said != r.Expected {
		c.mismatch("%s: the daemons say %q, kvcompat %q %s", r.ID(), r.Said, r.Expected, r.Error)
		return
	}
	c.verdicts[r.ID()] = true
}

func (c *counting) damage(r *Row, changed bool) {
	key := [3]string{string(r.Kind), r.Prefill, r.Decode}
	s := c.damaged[key]
	s.add(changed)
	c.damaged[key] = s
}

// lossy adds a prompt of a pair that may lose values. Everything but values has to be
// as for any other pair.
func (c *counting) lossy(r *Row) {
	i := slices.IndexFunc(c.f.Lossy, func(l Lossy) bool { return l.Pair == r.ID() })
	if i < 0 {
		i = len(c.f.Lossy)
		c.f.Lossy = append(c.f.Lossy, Lossy{Pair: r.ID()})
	}
	if r.Error != "" || len(r.Got) == 0 || len(r.Want) == 0 || r.Computed > 1 || r.BytesExpected <= 0 || r.Bytes != r.BytesExpected || r.End != "" || r.Expected == "" || r.Said != r.Expected {
		c.mismatch("%s, lossy: %s computed %d, received %d of %d bytes, converted %q, want %q, ended %q", r.ID(), r.Error, r.Computed, r.Bytes, r.BytesExpected, r.Said, r.Expected, r.End)
		return
	}
	l := &c.f.Lossy[i]
	l.MeanError = (l.MeanError*float64(l.Prompts) + r.MeanError) / float64(l.Prompts+1)
	l.Prompts++
	l.Clipped += r.Clipped
	l.Rounded += r.Rounded
	l.MaxError = max(l.MaxError, r.MaxError)
	if r.Got[0] == r.Want[0] {
		l.SameToken++
	}
}

// missing compares what was run with the plan.
func (c *counting) missing() {
	formats := map[[3]string]bool{}
	for i := range c.plan.Pairs {
		p := &c.plan.Pairs[i]
		formats[[3]string{p.Set, p.Prefill.Name, p.Decode.Name}] = true
		want := c.need.Prompts
		if p.Default() {
			want = max(want, c.need.DefaultPrompts)
		}
		if n := c.plain[p.ID()]; n < want || n == 0 {
			c.mismatch("%s: %d of %d prompts were run", p.ID(), n, want)
		}
		if !c.verdicts[p.ID()] {
			c.mismatch("%s: nothing is known of the daemons' verdict", p.ID())
		}
		w := c.wrong[p.ID()]
		c.control(w.Of > 0 && w.Are*100 >= w.Of*95, "%s: wrong weights changed %d of %d answers", p.ID(), w.Are, w.Of)
	}
	for way, n := range c.ways {
		if n < c.need.Prompts {
			c.mismatch("%s: %d of %d prompts were run", way, n, c.need.Prompts)
		}
	}
	if len(c.ways) < c.need.Ways {
		c.mismatch("%d of %d ways between pools were run", len(c.ways), c.need.Ways)
	}
	c.f.Pairs = len(formats)
	if c.f.Pairs == 0 {
		c.mismatch("nothing was planned")
	}
	for i := range c.plan.Refusals {
		if r := &c.plan.Refusals[i]; !c.verdicts[r.ID()] {
			c.mismatch("%s: the daemons do not refuse it", r.ID())
			continue
		}
		c.f.Refused++
	}
}

func (c *counting) controls() {
	k := &c.f.Controls
	c.control(k.WrongDefault.Of >= c.need.WrongDefault && k.WrongDefault.Are >= k.WrongDefault.Of-1, "wrong weights changed %d of %d answers of the default pair, %d prompts are required", k.WrongDefault.Are, k.WrongDefault.Of, c.need.WrongDefault)
	for _, p := range c.need.DamagedPairs {
		for _, d := range []struct {
			kind    Kind
			trials  int
			percent int
		}{{KindFlip, c.need.Damaged, 95}, {KindSwap, c.need.Damaged / 2, 95}, {KindNoop, 1, 100}} {
			s := c.damaged[[3]string{string(d.kind), p[0], p[1]}]
			c.control(s.Of >= d.trials && s.Of > 0 && s.Are*100 >= s.Of*d.percent, "%s on %s → %s changed %d of %d, %d trials are required", d.kind, p[0], p[1], s.Are, s.Of, d.trials)
		}
	}
	c.control(k.Silent.Of > 0 && k.Silent.Are == k.Silent.Of, "%d of %d prompts without a transfer were noticed", k.Silent.Are, k.Silent.Of)
	c.control(k.Refused.Of > 0, "no prompt was sent to a refused pair")
	c.control(k.Inexact.Of > 0, "no conversion was given up")
	changed := int64(0)
	for _, l := range c.f.Lossy {
		changed += l.Clipped + l.Rounded
		c.control(l.Prompts > 0, "%s: no prompt", l.Pair)
		c.control(c.refused[l.Pair], "%s: it was not shown to be refused unless losses are allowed", l.Pair)
	}
	c.control(len(c.f.Lossy) >= c.need.Lossy && changed > 0, "%d of %d lossy pairs were run, %d values changed", len(c.f.Lossy), c.need.Lossy, changed)
	c.f.ControlsOK = !c.bad
}
