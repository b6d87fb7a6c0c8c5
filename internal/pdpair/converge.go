package pdpair

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
	"github.com/moai-dev/terraform-provider-moai/internal/pdpair/canary"
)

const (
	// engineWait is how long a pair waits for an engine that is not ready: its own resource has waited before.
	engineWait = 20 * time.Second
	// reserve is left of a timeout for what has to be done after the canaries.
	reserve = 10 * time.Second
)

// placedError is an error with the attribute that it belongs to.
type placedError struct {
	at    path.Path // of the node concerned
	coord fleet.Coordinates
	err   error
}

// Error implements error.
func (e *placedError) Error() string { return e.err.Error() }

// Unwrap implements the protocol of errors.Is.
func (e *placedError) Unwrap() error { return e.err }

// converger talks to the daemons of a pair's nodes.
type converger struct {
	fleet *fleet.Fleet
	name  string
	pools pools
}

func (c *converger) placed(e engineref.Ref, err error) error {
	if err == nil {
		return nil
	}
	return &placedError{c.pools.at(e), e.Node.Coordinates, err}
}

func (c *converger) daemon(e engineref.Ref) *client.Client {
	return c.fleet.Node(e.Node.Coordinates).Manage()
}

// register tells every node's daemon of the pair. began is called once, after the
// first change. former lists the nodes of the pair as it was, whose daemons are
// told to forget it where it has left them.
func (c *converger) register(ctx context.Context, former []engineref.Ref, began func()) error {
	nodes := c.pools.nodes()
	for _, e := range nodes {
		if err := c.fleet.Node(e.Node.Coordinates).Verify(ctx); err != nil {
			return c.placed(e, err)
		}
	}
	want := c.pools.registration(c.name)
	for n, e := range nodes {
		if _, err := c.daemon(e).PutPair(ctx, want); err != nil {
			return c.placed(e, err)
		}
		if n == 0 {
			began()
		}
	}
	stays := map[string]bool{}
	for _, e := range nodes {
		stays[e.Node.Name] = true
	}
	for _, e := range former {
		if !stays[e.Node.Name] {
			if err := c.forget(ctx, e); err != nil {
				return c.placed(e, err)
			}
		}
	}
	return nil
}

// findings are what the canaries of a pair came to: what is wrong with which
// engine, what is not proved yet, and what a conversion that loses values did.
type findings struct {
	wrong []string
	open  []string
	notes []string
}

// verify sends a canary through every prefill and decode engine; of an engine with
// data-parallel replicas, through one of them. An engine that is not ready leaves
// its pairs unproved.
func (c *converger) verify(ctx context.Context, cs []crossing) (findings, error) {
	var f findings
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-reserve))
		defer cancel()
	}
	ready := map[string]bool{}
	for _, e := range c.pools.all() {
		st, err := c.daemon(e).GetEngine(ctx, e.Name, engineWait)
		switch {
		case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			f.open = append(f.open, "The time was up before every engine was asked.")
			return f, nil
		case client.IsNotFound(err):
			f.open = append(f.open, fmt.Sprintf("The daemon of node %s knows no engine %s.", e.Node.Name, e.Name))
		case err != nil:
			return f, c.placed(e, err)
		case !st.Ready:
			f.open = append(f.open, fmt.Sprintf("Engine %s is not ready: %s.", e.ID(), or(st.Reason, "no reason given")))
		default:
			ready[e.ID()] = true
		}
	}
	for _, x := range cs {
		if ready[x.prefill.ID()] && ready[x.decode.ID()] {
			if err := c.one(ctx, x, &f); err != nil {
				return f, err
			}
		}
	}
	return f, nil
}

// one sends a canary over one crossing.
func (c *converger) one(ctx context.Context, x crossing, f *findings) error {
	p, d := x.prefill, x.decode
	run, err := newCanary(x, c.daemon(p), c.daemon(d))
	if err != nil {
		return c.placed(d, err)
	}
	from := fmt.Sprintf("From %s to %s: ", p.ID(), d.ID())
	done, err := c.fleet.Turn(ctx, alone(x)...)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case err != nil:
		f.open = append(f.open, from+"The time was up while canaries of other pairs ran.")
		return nil
	}
	defer done()
	v, err := run.run(ctx)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case err != nil:
		// The engines were ready a moment ago; what fails now may pass by itself.
		f.open = append(f.open, from+err.Error()+".")
	case v.Outcome == canary.Wrong:
		f.wrong = append(f.wrong, from+strings.Join(v.Reasons, " "))
	case v.Outcome == canary.NotYet:
		f.open = append(f.open, from+strings.Join(v.Reasons, " "))
	case len(v.Notes) > 0:
		f.notes = append(f.notes, from+strings.Join(v.Notes, " "))
	}
	return nil
}

// alone names what a canary must have to itself, since it counts what its decode engine does: that engine, and a prefill
// engine that is the decode engine of other pairs, whose canaries count the same. Terraform makes pairs in parallel.
func alone(x crossing) []string {
	keys := []string{"canary " + x.decode.ID()}
	if x.prefill.Role.Decodes() {
		keys = append(keys, "canary "+x.prefill.ID())
	}
	return keys
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// read asks every node's daemon for the pair. Of a machine that cannot be reached
// the word is empty, and silent holds the error.
func (c *converger) read(ctx context.Context) (words map[string]string, silent []error) {
	words = map[string]string{}
	want := c.pools.registration(c.name)
	for _, e := range c.pools.nodes() {
		n := c.fleet.Node(e.Node.Coordinates)
		if err := n.Verify(ctx); err != nil {
			words[e.Node.Name] = ""
			silent = append(silent, c.placed(e, err))
			continue
		}
		var got *api.Pair
		got, err := n.Manage().GetPair(ctx, c.name)
		switch {
		case client.IsNotFound(err):
			words[e.Node.Name] = stMissing
		case err != nil:
			words[e.Node.Name] = stSilent
		default:
			words[e.Node.Name] = judge(got, want)
		}
	}
	return words, silent
}

// remove makes every node's daemon forget the pair. note receives what a person
// should know.
func (c *converger) remove(ctx context.Context, note func(string)) (errs []error) {
	for _, e := range c.pools.nodes() {
		err := c.forget(ctx, e)
		var other *fleet.IdentityError
		switch {
		case errors.As(err, &other):
			note(other.Error() + ". Nothing was changed on it.")
		case err != nil:
			errs = append(errs, c.placed(e, err))
		}
	}
	return errs
}

// forget makes one daemon forget the pair. A daemon that is provably gone has
// forgotten; one that sleeps is woken, since what it holds would come back with it.
func (c *converger) forget(ctx context.Context, e engineref.Ref) error {
	n := c.fleet.Node(e.Node.Coordinates)
	state, err := n.Daemon(ctx)
	if err != nil {
		return err
	}
	switch state {
	case fleet.DaemonAbsent:
		return nil
	case fleet.DaemonRunning:
	case fleet.DaemonStopped:
		if err := n.Wake(ctx, "moai_pd_pair."+c.name); err != nil {
			return err
		}
	}
	return n.Manage().DeletePair(ctx, c.name)
}
