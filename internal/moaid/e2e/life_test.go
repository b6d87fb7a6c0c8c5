package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/e2e/rig"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
)

// quick are deadlines short enough to wait for.
func quick() rig.Options {
	return rig.Options{Timeouts: transfer.Timeouts{
		Reserve: 2 * time.Second, Offer: 2 * time.Second, Claim: 2 * time.Second, Progress: 2 * time.Second,
		Load: 2 * time.Second, Return: time.Second, Absent: time.Second, Grace: 200 * time.Millisecond, Retain: time.Minute,
	}}
}

func seededPair(t *testing.T, o rig.Options, change func(p, d *refengine.Config)) *pair {
	t.Helper()
	p, d := config("prefill-0", "moai/seeded", 1), config("decode-0", "moai/seeded", 1)
	if change != nil {
		change(&p, &d)
	}
	return startPair(t, o, p, d)
}

// quiet waits until engines and daemons hold nothing.
func (p *pair) quiet(t *testing.T) {
	t.Helper()
	for _, e := range []*engine{p.p, p.d} {
		rig.Eventually(t, 20*time.Second, func() error {
			if s := e.Stats(); s.BlocksFree != s.BlocksTotal || s.Running+s.Waiting > 0 {
				return fmt.Errorf("%s: %+v", e.name, s)
			}
			return nil
		})
	}
	for _, n := range []*rig.Node{p.A, p.B} {
		rig.Eventually(t, 20*time.Second, func() error {
			st, err := n.Manage.Status(t.Context())
			if err != nil {
				return err
			}
			for _, e := range st.Engines {
				if e.StagingFree != staging {
					return fmt.Errorf("%s: %d of %d staging bytes are free", e.Name, e.StagingFree, staging)
				}
			}
			return nil
		})
	}
}

func (p *pair) remote(id string) *sched.TransferParams {
	return &sched.TransferParams{DoRemotePrefill: true, TransferID: id, SourceNode: p.p.node, SourceEngine: p.p.name}
}

// A request that waits for KV holds nothing, and its client can leave.
func TestAbortWhileWaitingForKV(t *testing.T) {
	p := seededPair(t, rig.Options{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.d.complete(ctx, prompts(2, 300, 1)[1], osl, p.remote(rig.ID(5)))
		done <- err
	}()
	rig.Eventually(t, 10*time.Second, func() error {
		if s := p.d.Stats(); s.Waiting != 1 || s.BlocksFree != s.BlocksTotal {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the request ended with %v", err)
	}
	p.quiet(t)
}

// The client leaves while the prompt is being read: blocks and pages come free.
func TestAbortDuringPrefill(t *testing.T) {
	p := seededPair(t, rig.Options{}, nil)
	prompt := prompts(2, 3000, 1)[1]
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.p.complete(ctx, prompt, 1, &sched.TransferParams{DoRemoteDecode: true, TransferID: rig.ID(6), TargetNode: p.d.node, TargetEngine: p.d.name})
		done <- err
	}()
	rig.Eventually(t, 10*time.Second, func() error {
		if s := p.p.Stats(); s.BlocksFree == s.BlocksTotal {
			return errors.New("prefill has not begun")
		}
		return nil
	})
	cancel()
	<-done
	p.quiet(t)
}

func TestFailedTransfers(t *testing.T) {
	prompt := prompts(2, 200, 1)[1]
	want := alone(t, "moai/seeded", [][]int{prompt})[0]
	t.Run("recompute", func(t *testing.T) {
		p := seededPair(t, quick(), nil)
		got, err := p.d.complete(t.Context(), prompt, osl, p.remote(rig.ID(7)))
		if err != nil || !slices.Equal(got.Tokens, want.Tokens) {
			t.Errorf("got %v, %v, want %v", got.Tokens, err, want.Tokens)
		}
		if n := p.d.metric(t.Context(), "reference_recomputes_total"); n != 1 {
			t.Errorf("%v recomputes counted", n)
		}
		p.quiet(t)
	})
	t.Run("fail", func(t *testing.T) {
		o := quick()
		o.OnFailure = "fail"
		p := seededPair(t, o, nil)
		if _, err := p.d.complete(t.Context(), prompt, osl, p.remote(rig.ID(8))); err == nil || !strings.Contains(err.Error(), "500") {
			t.Errorf("the request ended with %v, want status 500", err)
		}
		p.quiet(t)
	})
	t.Run("other prompt", func(t *testing.T) {
		p := seededPair(t, rig.Options{}, nil)
		first, err := p.p.complete(t.Context(), prompts(2, 200, 9)[1], 1, &sched.TransferParams{DoRemoteDecode: true})
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.d.complete(t.Context(), prompt, osl, first.Transfer)
		if err != nil || !slices.Equal(got.Tokens, want.Tokens) || got.Cached != 0 {
			t.Errorf("KV of another prompt was used: %+v, %v", got, err)
		}
	})
}

// Engines stay up while their daemons are restarted, and transfer again.
func TestDaemonsRestart(t *testing.T) {
	p := seededPair(t, rig.Options{}, func(p, d *refengine.Config) { p.DownWait, d.DownWait = 300*time.Millisecond, 300*time.Millisecond })
	ps := prompts(3, 200, 1)
	want := alone(t, "moai/seeded", ps)
	check := func(i, cached int) {
		t.Helper()
		got, _, err := p.split(t.Context(), ps[i], osl)
		if err != nil || !slices.Equal(got.Tokens, want[i].Tokens) || got.Cached != cached {
			t.Errorf("got %+v, %v, want %v with %d cached", got, err, want[i].Tokens, cached)
		}
	}
	check(1, len(ps[1])-1)
	for _, n := range []*rig.Node{p.B, p.A} {
		n.Stop()
		e := p.d
		if n == p.A {
			e = p.p
		}
		rig.Eventually(t, 10*time.Second, func() error {
			if e.Health() == nil {
				return errors.New("an engine without its daemon is healthy")
			}
			return nil
		})
		if got, err := e.complete(t.Context(), ps[2], osl, p.remote(rig.ID(9))); err != nil || !slices.Equal(got.Tokens, want[2].Tokens) {
			t.Errorf("without a daemon: %+v, %v", got, err)
		}
		n.Start()
		rig.Eventually(t, 20*time.Second, e.Health)
		p.A.WaitLink(t)
		p.B.WaitLink(t)
		check(2, len(ps[2])-1)
	}
}
