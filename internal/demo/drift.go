package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const engineUnitFile = "/etc/systemd/system/moai-engine-" + decodeEngine + ".service"

// handEdit is what somebody adds to the engine's unit.
const handEdit = "Nice=7"

// drift does by hand what must not stay unseen, and lets Terraform show and
// heal it.
func (r *drive) drift(ctx context.Context) error {
	r.N.Step("Drift: kill the decode host's KV daemon, then stop it, and edit a unit by hand")
	if err := r.killed(ctx); err != nil {
		return err
	}
	for _, script := range []string{
		"systemctl stop moai-kvd.service\n",
		"printf '\\n[Service]\\n" + handEdit + "\\n' >>" + engineUnitFile + "\n",
	} {
		if _, err := ssh(ctx, r.env, DecodeHost, strings.NewReader(script), "sudo", "-n", "sh", "-s"); err != nil {
			return err
		}
	}
	changes, out, err := r.quiet().Plan(ctx)
	if err != nil {
		return err
	}
	shown := changedLines(out)
	r.report.DriftShown = changes
	for _, want := range []string{
		"# moai_node.mi300x will be updated in-place", `~ service = "inactive" -> "active"`,
		"# moai_engine.decode will be updated in-place", `~ unit = "changed" -> "ok"`,
	} {
		if !slices.Contains(shown, want) {
			r.report.DriftShown = false
			return fmt.Errorf("the plan does not show %q:\n%s", want, strings.Join(shown, "\n"))
		}
	}
	r.N.Say("the plan shows it:")
	for _, line := range shown {
		r.N.print("            %s\n", line)
	}
	r.N.Step("Apply heals it")
	if _, err := r.tf.Apply(ctx); err != nil {
		return err
	}
	again, out, err := r.quiet().Plan(ctx)
	if err != nil {
		return err
	}
	if again {
		return fmt.Errorf("the plan after healing is not empty:\n%s", out)
	}
	unit, err := ssh(ctx, r.env, DecodeHost, nil, "cat", engineUnitFile)
	if err != nil {
		return err
	}
	if strings.Contains(unit, handEdit) {
		return fmt.Errorf("what was written by hand is still in %s", engineUnitFile)
	}
	if err := r.recitesAgain(ctx, "after healing"); err != nil {
		return err
	}
	r.report.DriftHealed = true
	return nil
}

// killed ends the daemon with SIGKILL: systemd starts it again, the engine gives
// its memory back and the peer reconnects, without Terraform.
func (r *drive) killed(ctx context.Context) error {
	before, err := r.decode.Status(ctx)
	if err != nil {
		return err
	}
	if _, err := ssh(ctx, r.env, DecodeHost, nil, "sudo", "-n", "systemctl", "kill", "-s", "KILL", "moai-kvd.service"); err != nil {
		return err
	}
	start := time.Now()
	if err := r.restarted(ctx, before.Instance); err != nil {
		return err
	}
	r.N.Say("killed -9: back with engine and link after %.1f s, without Terraform", time.Since(start).Seconds())
	return r.recitesAgain(ctx, "after the kill")
}

// restarted waits for another instance of the daemon that has engine and link back.
func (r *drive) restarted(ctx context.Context, old string) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		var last error
		s, err := r.decode.Status(ctx)
		switch {
		case err != nil:
			last = err
		case s.Instance == old:
			last = errors.New("the old instance still answers")
		case len(s.Links) == 0 || !s.Links[0].Up:
			last = errors.New("the link is down")
		case len(s.Engines) == 0 || !s.Engines[0].Ready:
			last = errors.New("the engine is not ready")
		default:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the killed daemon did not come back in 60 s: %w", last)
		case <-tick.C:
		}
	}
}

// recitesAgain sends the prompt once more and wants the right answer by KV, not
// by computing alone. The router may need a moment to see that a node is back.
func (r *drive) recitesAgain(ctx context.Context, when string) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := complete(ctx, r.endpoint, model, r.recital.Prompt, glimpseTokens, nil)
		if err == nil && c.Text != r.recital.Answer[:glimpseTokens] {
			return fmt.Errorf("%s the endpoint gave a wrong answer: %q", when, c.Text)
		}
		if err == nil && strings.HasPrefix(c.Route, "pd") {
			r.N.Say("%s the endpoint recites again, over both hosts", when)
			return nil
		}
		if err == nil {
			err = fmt.Errorf("the route is %s", c.Route)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s the endpoint did not come back in 60 s: %w", when, err)
		case <-tick.C:
		}
	}
}

// changedLines picks the lines of a plan that name a resource or a changed
// attribute, their spaces folded. What a refresh saw comes before the actions and
// is not part of it.
func changedLines(plan string) []string {
	_, actions, _ := strings.Cut(plan, "will perform the following actions:")
	var out []string
	for _, line := range strings.Split(actions, "\n") {
		t := strings.Join(strings.Fields(line), " ")
		if strings.HasPrefix(t, "# moai_") || strings.HasPrefix(t, "~ ") && strings.Contains(t, "->") {
			out = append(out, t)
		}
	}
	return out
}
