package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/e2e/formats"
)

// Variables of the tests that run the pairs.
const (
	formatRowsEnv    = "MOAI_FORMATS_ROWS"
	formatPromptsEnv = "MOAI_FORMATS_PROMPTS"
)

// formatPrompts is how many prompts a pair has unless the environment says otherwise.
const formatPrompts = 8

// testFormats runs all pairs of KV formats through engines and daemons, with the
// controls, and computes the figures of the rows that are written. The last line is JSON.
func (r repo) testFormats(ctx context.Context) error {
	begin := time.Now()
	prompts := formatPrompts
	if s := os.Getenv(formatPromptsEnv); s != "" {
		var err error
		if prompts, err = strconv.Atoi(s); err != nil || prompts < 1 {
			return fmt.Errorf("%s=%s is no number of prompts a pair", formatPromptsEnv, s)
		}
	}
	dir := filepath.Join(r.root, "build", "formats")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	path := filepath.Join(dir, "rows.jsonl")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	env := []string{formatRowsEnv + "=" + path, formatPromptsEnv + "=" + strconv.Itoa(prompts)}
	const pkg = "./e2e/formats"
	say("--- pairs of KV formats, %d prompts each", prompts)
	failed := r.execEnv(ctx, "internal/moaid", env, "go", "test", "-count=1", "-timeout", "4h", "-run", "^TestFormats$", pkg)
	say("--- damage, with the test build")
	failed = errors.Join(failed, r.execEnv(ctx, "internal/moaid", env, "go", "test", "-count=1", "-timeout", "1h", "-tags", "moai_damage", "-run", "^TestFormatsSpoiled$", pkg))

	f, err := formatFigures(path, prompts)
	if err != nil {
		return errors.Join(failed, err)
	}
	f.Seconds = time.Since(begin).Round(100 * time.Millisecond).Seconds()
	tellFormats(f, path)
	line, err := json.Marshal(f)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	if f.Mismatches > 0 || !f.ControlsOK {
		failed = errors.Join(failed, fmt.Errorf("%d mismatches; controls right: %t", f.Mismatches, f.ControlsOK))
	}
	return failed
}

// formatFigures computes the figures of a file of rows.
func formatFigures(path string, prompts int) (formats.Figures, error) {
	plan, err := formats.NewPlan(formats.Sets())
	if err != nil {
		return formats.Figures{}, err
	}
	file, err := os.Open(path)
	if err != nil {
		return formats.Figures{}, err
	}
	defer func() { _ = file.Close() }() // read only
	rows, err := formats.ReadRows(file)
	if err != nil {
		return formats.Figures{}, fmt.Errorf("%s: %w", path, err)
	}
	return formats.Compute(plan, rows, formats.CI(prompts)), nil
}

// tellFormats says for people what the figures are.
func tellFormats(f formats.Figures, path string) {
	say("\n%d pairs of formats, %d prompts, %d mismatches; %d pairs are refused by both daemons. %.0f s. Rows: %s", f.Pairs, f.Prompts, f.Mismatches, f.Refused, f.Seconds, path)
	c := f.Controls
	for _, s := range []struct {
		what string
		s    formats.Share
	}{
		{"answers changed by wrong weights", c.Wrong}, {"of these, on the default pair", c.WrongDefault}, {"logits changed by a flipped bit", c.Flip},
		{"answers changed by a swapped page", c.Swap}, {"transfers of nothing noticed", c.Noop}, {"silent recomputes noticed", c.Silent},
		{"prompts of refused pairs computed by decode", c.Refused}, {"inexact transfers given up", c.Inexact},
	} {
		say("  %-44s %d of %d", s.what, s.s.Are, s.s.Of)
	}
	for _, l := range f.Lossy {
		say("  %s: %d prompts, %d values clipped, %d rounded; logit error at most %.4g, on average %.4g; first token the same in %d",
			l.Pair, l.Prompts, l.Clipped, l.Rounded, l.MaxError, l.MeanError, l.SameToken)
	}
	const most = 40
	for i, p := range f.Problems {
		if i == most {
			say("  … and %d more", len(f.Problems)-most)
			break
		}
		say("  PROBLEM: %s", p)
	}
	say("")
}
