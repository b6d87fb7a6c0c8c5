package kvlink

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
)

const (
	probeBytes = 4 << 20          // a few chunks on every stream
	waitStep   = 10 * time.Second // how long a daemon holds one question
	waitPause  = 200 * time.Millisecond
	upLimit    = 45 * time.Second // several rounds of the daemons' backoff
)

// nodeError is an error with the end at which it happened.
type nodeError struct {
	index int
	err   error
}

// Error implements error.
func (e *nodeError) Error() string { return e.err.Error() }

// Unwrap implements the protocol of errors.Is.
func (e *nodeError) Unwrap() error { return e.err }

func at(i int, err error) error {
	if err == nil {
		return nil
	}
	return &nodeError{i, err}
}

// converger talks to both daemons.
type converger struct {
	ends  [2]end
	nodes [2]*fleet.Node
}

func newConverger(f *fleet.Fleet, s spec) *converger {
	c := &converger{ends: s.ends()}
	for i, e := range c.ends {
		c.nodes[i] = f.Node(e.node.Coordinates)
	}
	return c
}

func (c *converger) daemon(i int) *client.Client { return c.nodes[i].Manage() }

// verifyNodes makes sure that both machines are the expected ones.
func (c *converger) verifyNodes(ctx context.Context) error {
	for i, n := range c.nodes {
		if err := n.Verify(ctx); err != nil {
			return at(i, err)
		}
	}
	return nil
}

// found is what one daemon holds; nil means that it said it has none.
type found struct {
	trust *api.Trust
	link  *api.Link
}

func (f found) none() bool { return f.trust == nil && f.link == nil }

// read asks one daemon.
func (c *converger) read(ctx context.Context, i int) (found, error) {
	var f found
	trust, err := c.daemon(i).GetTrust(ctx, c.ends[i].trust.Name)
	switch {
	case err == nil:
		f.trust = trust
	case !client.IsNotFound(err):
		return found{}, at(i, err)
	}
	link, err := c.daemon(i).GetLink(ctx, c.ends[i].link.Name)
	switch {
	case err == nil:
		f.link = &link.Link
	case !client.IsNotFound(err):
		return found{}, at(i, err)
	}
	return f, nil
}

// converge tells both daemons, waits until the link is up and verifies a transfer each way. claimed is called before the
// first change.
func (c *converger) converge(ctx context.Context, claimed func()) error {
	if err := c.verifyNodes(ctx); err != nil {
		return err
	}
	for i, e := range c.ends {
		f, err := c.read(ctx, i)
		if err != nil {
			return err
		}
		if f.link != nil && f.link.Peer != e.link.Peer {
			return at(i, &takenError{node: e.node.Name, found: *f.link})
		}
	}
	claimed()
	// Both trust before either connects, so that no side's first attempt is refused and backs off.
	for i, e := range c.ends {
		if _, err := c.daemon(i).PutTrust(ctx, e.trust); err != nil {
			return at(i, err)
		}
	}
	for i, e := range c.ends {
		if _, err := c.daemon(i).PutLink(ctx, e.link); err != nil {
			return at(i, err)
		}
	}
	if err := c.waitUp(ctx); err != nil {
		return err
	}
	return c.probe(ctx)
}

// waitUp waits until both ends say that the link is up.
func (c *converger) waitUp(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, upLimit)
	defer cancel()
	for i := range c.ends {
		if err := c.waitEnd(bounded, i); err == nil {
			continue
		} else if !errors.Is(bounded.Err(), context.DeadlineExceeded) {
			return at(i, err)
		}
		return &downError{ends: c.ends, status: c.lastWords(ctx)}
	}
	return nil
}

// waitEnd asks one daemon until its end is up or ctx ends.
func (c *converger) waitEnd(ctx context.Context, i int) error {
	for {
		s, err := c.daemon(i).WaitLink(ctx, c.ends[i].link.Name, waitStep)
		if err != nil {
			return err
		}
		if s.Up {
			return nil
		}
		timer := time.NewTimer(waitPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// lastWords asks both ends why the link is down, also when the time is over: the end that waits for calls usually knows
// nothing.
func (c *converger) lastWords(ctx context.Context) (status [2]*api.LinkStatus) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), waitStep)
	defer cancel()
	for i, e := range c.ends {
		if s, err := c.daemon(i).GetLink(ctx, e.link.Name); err == nil {
			status[i] = s
		}
	}
	return status
}

// probe moves bytes in each direction and compares.
func (c *converger) probe(ctx context.Context) error {
	for i, e := range c.ends {
		var id [4]byte
		if _, err := rand.Read(id[:]); err != nil {
			return fmt.Errorf("name the probe: %w", err)
		}
		r, err := c.daemon(i).Probe(ctx, e.link.Name, "apply-"+hex.EncodeToString(id[:]), probeBytes)
		if err != nil {
			return at(i, err)
		}
		if !r.OK || r.Bytes != probeBytes {
			reason := r.Reason
			if reason == "" {
				reason = fmt.Sprintf("%d of %d bytes arrived", r.Bytes, probeBytes)
			}
			return at(i, &probeError{from: e.node.Name, to: e.link.Peer, reason: reason})
		}
	}
	return nil
}

// remove makes both daemons forget the link. A daemon that is provably gone has forgotten; note tells of it.
func (c *converger) remove(ctx context.Context, note func(node, text string)) error {
	var errs []error
	for i, e := range c.ends {
		err := c.nodes[i].Verify(ctx)
		var other *fleet.IdentityError
		if errors.As(err, &other) {
			note(e.node.Name, other.Error())
			continue
		}
		if err == nil {
			err = c.forget(ctx, i)
		}
		if err != nil {
			errs = append(errs, at(i, err))
		}
	}
	return errors.Join(errs...)
}

// forget removes one end's link and trust, and wakes a daemon that sleeps: what it holds would come back with it.
func (c *converger) forget(ctx context.Context, i int) error {
	state, err := c.nodes[i].Daemon(ctx)
	if err != nil {
		return err
	}
	switch state {
	case fleet.DaemonAbsent:
		return nil
	case fleet.DaemonStopped:
		if err := c.nodes[i].Wake(ctx, "moai_kv_link."+c.ends[i].link.Name); err != nil {
			return err
		}
	case fleet.DaemonRunning:
	}
	if err := c.daemon(i).DeleteLink(ctx, c.ends[i].link.Name); err != nil {
		return err
	}
	return c.daemon(i).DeleteTrust(ctx, c.ends[i].trust.Name)
}
