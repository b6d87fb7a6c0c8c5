package router

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
	"github.com/moai-dev/terraform-provider-moai/internal/service"
)

// peerError is an error of a node of a pair, not of the router's own.
type peerError struct {
	at    path.Path // of the node
	coord fleet.Coordinates
	err   error
}

// Error implements error.
func (e *peerError) Error() string { return e.err.Error() }

// Unwrap implements the protocol of errors.Is.
func (e *peerError) Unwrap() error { return e.err }

func (s spec) placed(e engineref.Ref, err error) error {
	if err == nil {
		return nil
	}
	return &peerError{s.at(e.Node.Name), e.Node.Coordinates, err}
}

// at is the path of the first mention of a node.
func (s spec) at(node string) path.Path {
	root := path.Root("pairs")
	for i, p := range s.pairs {
		for j, e := range p.prefill {
			if e.Node.Name == node {
				return root.AtListIndex(i).AtName("prefill").AtListIndex(j).AtName("node")
			}
		}
		for j, e := range p.decode {
			if e.Node.Name == node {
				return root.AtListIndex(i).AtName("decode").AtListIndex(j).AtName("node")
			}
		}
	}
	return root
}

// pin makes every node of the pairs trust the router's key, and the nodes that it
// has left forget it.
func (i *installer) pin(ctx context.Context, s spec, key string, former []engineref.Ref) error {
	want := s.trust(key)
	stays := map[string]bool{}
	for _, e := range s.nodes() {
		stays[e.Node.Name] = true
		n := i.fleet.Node(e.Node.Coordinates)
		if err := n.Verify(ctx); err != nil {
			return s.placed(e, err)
		}
		if _, err := n.Manage().PutTrust(ctx, want); err != nil {
			return s.placed(e, err)
		}
	}
	for _, e := range former {
		if stays[e.Node.Name] {
			continue
		}
		if err := i.unpinOne(ctx, s, e); err != nil {
			return err
		}
	}
	return nil
}

// unpin makes every node of the pairs forget the router's key. A node that cannot
// be reached is an error: it would go on trusting.
func unpin(ctx context.Context, f *fleet.Fleet, s spec, note func(string)) (errs []error) {
	i := &installer{fleet: f}
	for _, e := range s.nodes() {
		err := i.unpinOne(ctx, s, e)
		var other *fleet.IdentityError
		switch {
		case errors.As(err, &other):
			note(other.Error() + ". Nothing was changed on it.")
		case err != nil:
			errs = append(errs, err)
		}
	}
	return errs
}

func (i *installer) unpinOne(ctx context.Context, s spec, e engineref.Ref) error {
	n := i.fleet.Node(e.Node.Coordinates)
	state, err := n.Daemon(ctx)
	if err != nil {
		return s.placed(e, err)
	}
	switch state {
	case fleet.DaemonAbsent:
		return nil
	case fleet.DaemonRunning:
	case fleet.DaemonStopped:
		if err := n.Wake(ctx, resourceName(s.name)); err != nil {
			return s.placed(e, err)
		}
	}
	return s.placed(e, n.Manage().DeleteTrust(ctx, trustName(s.node.Name, s.name)))
}

// trusted asks every node of the pairs. Of a machine that cannot be reached the word
// is empty, and silent holds the error.
func trusted(ctx context.Context, f *fleet.Fleet, s spec, key string) (found map[string]string, silent []error) {
	found = map[string]string{}
	want := s.trust(key)
	for _, e := range s.nodes() {
		n := f.Node(e.Node.Coordinates)
		if err := n.Verify(ctx); err != nil {
			found[e.Node.Name] = ""
			silent = append(silent, s.placed(e, err))
			continue
		}
		got, err := n.Manage().GetTrust(ctx, want.Name)
		switch {
		case client.IsNotFound(err):
			found[e.Node.Name] = service.Missing
		case err != nil:
			found[e.Node.Name] = service.Unresponsive
		default:
			found[e.Node.Name] = judgeTrust(*got, want)
		}
	}
	return found, silent
}

func judgeTrust(got, want api.Trust) string {
	if got != want {
		return service.Changed
	}
	return service.OK
}
