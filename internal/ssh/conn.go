package ssh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// Conn is the one connection to a target. It is set up when first used, and again when it was found dead; commands are
// never sent twice. It is safe for concurrent use.
type Conn struct {
	pool     *Pool
	target   Target
	via      *Conn // nil without bastions
	redactor *Redactor
	commands chan struct{}
	streams  chan struct{}

	mu      sync.Mutex
	live    *link
	dialing *dialCall
}

// link is one established connection.
type link struct {
	client *ssh.Client
	dead   chan struct{} // closed when the transport has ended

	sudoGate chan struct{} // of one: guards sudo
	sudo     sudoMode
}

// dialCall is one set-up that several callers wait for.
type dialCall struct {
	done chan struct{}
	link *link
	err  error
}

func newConn(p *Pool, t Target, via *Conn) *Conn {
	return &Conn{
		pool: p, target: t, via: via, redactor: t.redactor(),
		commands: make(chan struct{}, commandSessions), streams: make(chan struct{}, streamSessions),
	}
}

func (t Target) redactor() *Redactor {
	secrets := []Secret{t.PrivateKey, t.Become.Password}
	for _, b := range t.Bastions {
		secrets = append(secrets, b.PrivateKey)
	}
	return NewRedactor(secrets...)
}

// Target returns what the connection leads to.
func (c *Conn) Target() Target { return c.target }

// Redact removes the target's secrets from a text.
func (c *Conn) Redact(s string) string { return c.redactor.String(s) }

// Connect sets the connection up unless it is alive. Callers that come while one is setting it up share the outcome.
func (c *Conn) Connect(ctx context.Context) error {
	_, err := c.get(ctx)
	return err
}

func (c *Conn) get(ctx context.Context) (*link, error) {
	for {
		c.mu.Lock()
		if c.live != nil && !c.live.isDead() {
			l := c.live
			c.mu.Unlock()
			return l, nil
		}
		call := c.dialing
		if call == nil {
			call = &dialCall{done: make(chan struct{})}
			c.dialing = call
			c.mu.Unlock()
			call.link, call.err = c.dial(ctx)
			c.mu.Lock()
			c.dialing = nil
			if call.err == nil {
				c.live = call.link
			}
			c.mu.Unlock()
			close(call.done)
			if call.err == nil && c.pool.isClosed() {
				c.shut()
				return nil, &Error{Class: ErrClosed, Target: c.target.String(), Step: StepConnect}
			}
			return call.link, call.err
		}
		c.mu.Unlock()
		select {
		case <-call.done:
			// A set-up that its own caller's context ended says nothing about the host: try again under ours.
			if errors.Is(call.err, context.Canceled) || errors.Is(call.err, context.DeadlineExceeded) {
				if ctx.Err() == nil {
					continue
				}
			}
			return call.link, call.err
		case <-ctx.Done():
			return nil, cancelled(c.target, StepConnect, ctx.Err())
		}
	}
}

// dial sets a connection up, with further attempts after failures that pass by themselves and fail fast. A timeout is
// not repeated here: it has cost its time already, and callers have their own patience.
func (c *Conn) dial(ctx context.Context) (*link, error) {
	opts := c.pool.opts
	for n := 1; ; n++ {
		l, err := c.dialOnce(ctx)
		if err == nil {
			opts.Log("ssh connected", "target", c.target.String(), "attempt", n)
			return l, nil
		}
		if n >= opts.DialAttempts || !Retryable(err) || errors.Is(err, ErrTimeout) || ctx.Err() != nil {
			return nil, err
		}
		opts.Log("ssh connection failed, trying again", "target", c.target.String(), "attempt", n, "error", c.Redact(err.Error()))
		timer := time.NewTimer(backoff(opts.BackoffBase, n, rand.Float64())) //nolint:gosec // jitter is no secret
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		}
	}
}

func (c *Conn) dialOnce(ctx context.Context) (*link, error) {
	if c.pool.isClosed() {
		return nil, &Error{Class: ErrClosed, Target: c.target.String(), Step: StepConnect}
	}
	dial, via := dialFunc(dialTCP), (*link)(nil)
	if c.via != nil {
		var err error
		if via, err = c.via.get(ctx); err != nil {
			return nil, err
		}
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := via.client.DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, fmt.Errorf("through %s: %w", c.via.target.String(), err)
			}
			return conn, nil
		}
	}
	server := c.target.Addr()
	if c.via != nil {
		server = c.via.target.Addr() + " " + server
	}
	release, err := c.pool.throttle(ctx, server)
	if err != nil {
		return nil, cancelled(c.target, StepConnect, err)
	}
	defer release()
	client, err := connect(ctx, c.target, dial)
	if err != nil {
		return nil, err
	}
	l := &link{client: client, dead: make(chan struct{}), sudoGate: make(chan struct{}, 1)}
	go func() {
		_ = client.Wait()
		close(l.dead)
	}()
	go c.keepalive(l)
	return l, nil
}

// keepalive ends the connection when the other side stays silent, so that nobody waits for a host that is gone.
func (c *Conn) keepalive(l *link) {
	opts := c.pool.opts
	tick := time.NewTicker(opts.KeepaliveInterval)
	defer tick.Stop()
	misses := 0
	answers := make(chan struct{}, 1)
	pending := false
	for {
		select {
		case <-l.dead:
			return
		case <-answers:
			// Any answer will do, also a refusal of the request: the host is there.
			pending, misses = false, 0
		case <-tick.C:
			if pending {
				if misses++; misses >= opts.KeepaliveMisses {
					opts.Log("ssh connection is silent, closing it", "target", c.target.String())
					_ = l.client.Close()
					return
				}
				continue
			}
			pending = true
			go func() {
				_, _, _ = l.client.SendRequest("keepalive@openssh.com", true, nil)
				answers <- struct{}{}
			}()
		}
	}
}

func (l *link) isDead() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

// shut ends the live connection, if any.
func (c *Conn) shut() {
	c.mu.Lock()
	l := c.live
	c.live = nil
	c.mu.Unlock()
	if l != nil {
		_ = l.client.Close()
		<-l.dead
	}
}

// session opens a session, on a fresh connection if the present one turns out to be dead: nothing was sent yet, so
// this repeats nothing.
func (c *Conn) session(ctx context.Context) (*link, *ssh.Session, error) {
	for attempt := 1; ; attempt++ {
		l, err := c.get(ctx)
		if err != nil {
			return nil, nil, err
		}
		s, err := openSession(ctx, l)
		if err == nil {
			return l, s, nil
		}
		if ctx.Err() != nil {
			return nil, nil, cancelled(c.target, StepSession, ctx.Err())
		}
		var refused *ssh.OpenChannelError
		if errors.As(err, &refused) {
			return nil, nil, &Error{Class: ErrUnreachable, Target: c.target.String(), Step: StepSession, Err: err,
				Fix: "The host refuses more sessions on this connection: check MaxSessions in its sshd_config"}
		}
		_ = l.client.Close()
		select {
		case <-l.dead:
		case <-ctx.Done():
		}
		if attempt > 1 {
			return nil, nil, &Error{Class: ErrUnreachable, Target: c.target.String(), Step: StepSession, Err: err,
				Fix: "The connection ended twice before a session was opened"}
		}
	}
}

// openSession bounds the opening by ctx. On expiry the goroutine stays until the host answers or the keepalive ends the
// connection, and closes what it got.
func openSession(ctx context.Context, l *link) (*ssh.Session, error) {
	type outcome struct {
		s   *ssh.Session
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		s, err := l.client.NewSession()
		done <- outcome{s, err}
	}()
	select {
	case o := <-done:
		return o.s, o.err
	case <-ctx.Done():
		go func() {
			if o := <-done; o.s != nil {
				_ = o.s.Close()
			}
		}()
		return nil, ctx.Err()
	}
}
