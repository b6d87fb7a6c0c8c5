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

func seededPair(t *testing.T, o rig.Options, change func(p, d *refengine.Config)) *rig.EnginePair {
	t.Helper()
	p, d := rig.Config("prefill-0", "moai/seeded", 1), rig.Config("decode-0", "moai/seeded", 1)
	if change != nil {
		change(&p, &d)
	}
	return rig.StartPair(t, o, p, d)
}

// onRanks runs a test with engines of one rank, and of two.
func onRanks(t *testing.T, f func(t *testing.T, ranks func(p, d *refengine.Config))) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) {
			f(t, func(p, d *refengine.Config) { p.Format.Tensor, d.Format.Tensor = n, n })
		})
	}
}

// A request that waits for KV holds nothing, and its client can leave.
func TestAbortWhileWaitingForKV(t *testing.T) {
	onRanks(t, func(t *testing.T, ranks func(p, d *refengine.Config)) {
		p := seededPair(t, rig.Options{}, ranks)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := p.D.Complete(ctx, rig.Prompts(2, 300, 1)[1], osl, p.Remote(rig.ID(5)))
			done <- err
		}()
		rig.Eventually(t, 10*time.Second, func() error {
			if s := p.D.Stats(); s.Waiting != 1 || s.BlocksFree != s.BlocksTotal {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the request ended with %v", err)
		}
		p.Quiet(t)
	})
}

// The client leaves while the prompt is being read: blocks and pages come free.
func TestAbortDuringPrefill(t *testing.T) {
	onRanks(t, func(t *testing.T, ranks func(p, d *refengine.Config)) {
		p := seededPair(t, rig.Options{}, ranks)
		prompt := rig.Prompts(2, 3000, 1)[1]
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := p.P.Complete(ctx, prompt, 1, &sched.TransferParams{DoRemoteDecode: true, TransferID: rig.ID(6), TargetNode: p.D.Node, TargetEngine: p.D.Name})
			done <- err
		}()
		rig.Eventually(t, 10*time.Second, func() error {
			if s := p.P.Stats(); s.BlocksFree == s.BlocksTotal {
				return errors.New("prefill has not begun")
			}
			return nil
		})
		cancel()
		<-done
		p.Quiet(t)
	})
}

func TestFailedTransfers(t *testing.T) {
	prompt := rig.Prompts(2, 200, 1)[1]
	want := rig.Alone(t, rig.Config("alone", "moai/seeded", 1), [][]int{prompt}, osl)[0]
	t.Run("recompute", func(t *testing.T) {
		p := seededPair(t, quick(), nil)
		got, err := p.D.Complete(t.Context(), prompt, osl, p.Remote(rig.ID(7)))
		if err != nil || !slices.Equal(got.Tokens, want.Tokens) {
			t.Errorf("got %v, %v, want %v", got.Tokens, err, want.Tokens)
		}
		if n := p.D.Metric(t.Context(), "reference_recomputes_total"); n != 1 {
			t.Errorf("%v recomputes counted", n)
		}
		p.Quiet(t)
	})
	t.Run("fail", func(t *testing.T) {
		o := quick()
		o.OnFailure = "fail"
		p := seededPair(t, o, nil)
		if _, err := p.D.Complete(t.Context(), prompt, osl, p.Remote(rig.ID(8))); err == nil || !strings.Contains(err.Error(), "500") {
			t.Errorf("the request ended with %v, want status 500", err)
		}
		p.Quiet(t)
	})
	t.Run("other prompt", func(t *testing.T) {
		p := seededPair(t, rig.Options{}, nil)
		first, err := p.P.Complete(t.Context(), rig.Prompts(2, 200, 9)[1], 1, &sched.TransferParams{DoRemoteDecode: true})
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.D.Complete(t.Context(), prompt, osl, first.Transfer)
		if err != nil || !slices.Equal(got.Tokens, want.Tokens) || got.Cached != 0 {
			t.Errorf("KV of another prompt was used: %+v, %v", got, err)
		}
	})
}

// Engines stay up while their daemons are restarted, and transfer again.
func TestDaemonsRestart(t *testing.T) {
	p := seededPair(t, rig.Options{}, func(p, d *refengine.Config) { p.DownWait, d.DownWait = 300*time.Millisecond, 300*time.Millisecond })
	ps := rig.Prompts(3, 200, 1)
	want := rig.Alone(t, rig.Config("alone", "moai/seeded", 1), ps, osl)
	check := func(i, cached int) {
		t.Helper()
		got, _, err := p.Split(t.Context(), ps[i], osl)
		if err != nil || !slices.Equal(got.Tokens, want[i].Tokens) || got.Cached != cached {
			t.Errorf("got %+v, %v, want %v with %d cached", got, err, want[i].Tokens, cached)
		}
	}
	check(1, len(ps[1])-1)
	for _, n := range []*rig.Node{p.B, p.A} {
		n.Stop()
		e := p.D
		if n == p.A {
			e = p.P
		}
		rig.Eventually(t, 10*time.Second, func() error {
			if e.Health() == nil {
				return errors.New("an engine without its daemon is healthy")
			}
			return nil
		})
		if got, err := e.Complete(t.Context(), ps[2], osl, p.Remote(rig.ID(9))); err != nil || !slices.Equal(got.Tokens, want[2].Tokens) {
			t.Errorf("without a daemon: %+v, %v", got, err)
		}
		n.Start()
		rig.Eventually(t, 20*time.Second, e.Health)
		p.A.WaitLink(t)
		p.B.WaitLink(t)
		check(2, len(ps[2])-1)
	}
}
