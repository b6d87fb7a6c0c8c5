package ssh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// dialFunc makes the transport to host:port: TCP, or a channel through a bastion.
type dialFunc func(ctx context.Context, addr string) (net.Conn, error)

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// connect makes one attempt: transport, host key, authentication. All of it ends when ctx does or the target's connect
// timeout passes, whatever the other side does.
func connect(ctx context.Context, t Target, dial dialFunc) (*ssh.Client, error) {
	signer, err := parsePrivateKey(t.PrivateKey)
	if err != nil {
		return nil, &Error{Class: ErrConfig, Target: t.String(), Step: StepConfig, Attribute: t.at("private_key"), Err: err}
	}
	v, err := newVerifier(t)
	if err != nil {
		return nil, &Error{Class: ErrConfig, Target: t.String(), Step: StepConfig, Attribute: t.at("host_key"), Err: err}
	}
	bounded, cancel := context.WithTimeout(ctx, t.timeout())
	defer cancel()
	raw, err := dial(bounded, t.Addr())
	if err != nil {
		return nil, dialError(ctx, bounded, t, err)
	}
	var verified atomic.Bool
	cfg := &ssh.ClientConfig{
		User: t.User,
		Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if err := v.check(key); err != nil {
				return err
			}
			verified.Store(true)
			return nil
		},
		HostKeyAlgorithms: v.algorithms(),
		ClientVersion:     "SSH-2.0-moai",
	}
	type outcome struct {
		client *ssh.Client
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		c, chans, reqs, err := ssh.NewClientConn(raw, t.Addr(), cfg)
		if err != nil {
			done <- outcome{err: err}
			return
		}
		done <- outcome{client: ssh.NewClient(c, chans, reqs)}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			_ = raw.Close()
			return nil, handshakeError(t, verified.Load(), o.err)
		}
		return o.client, nil
	case <-bounded.Done():
		// Closing the transport ends the handshake; wait for it, so that nothing of this attempt is left.
		_ = raw.Close()
		if o := <-done; o.client != nil {
			_ = o.client.Close()
		}
		step := StepHandshake
		if verified.Load() {
			step = StepAuthenticate
		}
		if err := ctx.Err(); err != nil {
			return nil, cancelled(t, step, err)
		}
		return nil, &Error{Class: ErrTimeout, Target: t.String(), Step: step,
			Err: fmt.Errorf("no answer within %s after the connection was accepted", t.timeout()),
			Fix: "Something accepts connections there but does not speak SSH in time: check the port, the host's load, and proxies on the way"}
	}
}

// cancelled is the error for a step that the caller's own context ended.
func cancelled(t Target, step Step, err error) error {
	return &Error{Class: contextClass(err), Target: t.String(), Step: step, Err: err}
}

func contextClass(err error) error {
	if errors.Is(err, context.Canceled) {
		return ErrInterrupted
	}
	return ErrTimeout
}

func dialError(ctx, bounded context.Context, t Target, err error) error {
	var already *Error
	if errors.As(err, &already) {
		return err // a bastion's own error names the bastion
	}
	if ctx.Err() != nil {
		return cancelled(t, StepConnect, ctx.Err())
	}
	e := &Error{Class: ErrUnreachable, Target: t.String(), Step: StepConnect, Attribute: t.at("host"), Err: err}
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		e.Step = StepResolve
		e.Fix = "Check the name, or give an address"
		if dns.IsTimeout {
			e.Class = ErrTimeout
		}
	case bounded.Err() != nil, errors.As(err, &timeout) && timeout.Timeout():
		e.Class = ErrTimeout
		e.Fix = fmt.Sprintf("Nothing answered within %s: check the address, the security group or firewall, and the bastions", t.timeout())
	case strings.Contains(err.Error(), "refused"):
		e.Fix = "The host answers, but no SSH server listens on this port: check ssh.port, or wait until the host has booted"
	default:
		e.Fix = "Check the address, the route and the bastions"
	}
	return e
}

func handshakeError(t Target, verified bool, err error) error {
	var refused *keyError
	var algo *ssh.AlgorithmNegotiationError
	switch {
	case errors.As(err, &refused):
		return &Error{Class: ErrHostKey, Target: t.String(), Step: StepHandshake, Attribute: refused.attr, Fix: refused.fix,
			Err: errors.New(refused.text)}
	case errors.As(err, &algo) && strings.Contains(err.Error(), "host key"):
		return &Error{Class: ErrHostKey, Target: t.String(), Step: StepHandshake, Attribute: t.at("host_key"), Err: err,
			Fix: "The host has no key of the pinned type: pin one of the keys that ssh-keyscan shows"}
	case errors.As(err, &algo):
		return &Error{Class: ErrConfig, Target: t.String(), Step: StepHandshake, Err: err,
			Fix: "The host's SSH server offers only algorithms that are not accepted here: update it or widen its configuration"}
	case verified && strings.Contains(err.Error(), "unable to authenticate"):
		return &Error{Class: ErrAuth, Target: t.String(), Step: StepAuthenticate, Attribute: t.at("private_key"), Err: err,
			Fix: fmt.Sprintf("Check that the public half of this key is in ~%s/.ssh/authorized_keys and that the user may log in", t.User)}
	case verified:
		return &Error{Class: ErrUnreachable, Target: t.String(), Step: StepAuthenticate, Err: err,
			Fix: "The host closed the connection during authentication: look into its sshd log"}
	}
	return &Error{Class: ErrUnreachable, Target: t.String(), Step: StepHandshake, Err: err,
		Fix: "The connection was closed before the host showed its key: too many connections at once (MaxStartups), a ban, or not an SSH server"}
}

// backoff is the wait before attempt n (1, 2, …): doubling from base, at most 5 s, with jitter in [0.5, 1) of it.
func backoff(base time.Duration, n int, random float64) time.Duration {
	d := base
	for i := 1; i < n && d < 5*time.Second; i++ {
		d *= 2
	}
	d = min(d, 5*time.Second)
	return time.Duration(float64(d) * (0.5 + random/2))
}
