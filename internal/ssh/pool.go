package ssh

import (
	"context"
	"sync"
	"time"
)

// Limits that keep a fleet's sshd in their defaults (MaxStartups 10:30:100, MaxSessions 10).
const (
	// dialsPerServer bounds the set-ups in flight towards one address. A target needs one; several users of one
	// bastion or host may be set up together, and sshd starts to drop at 10, some of which belong to other people.
	dialsPerServer = 4
	// dialsTotal bounds set-ups in flight in the process: handshakes cost CPU here, and hosts that do not answer
	// hold a place for the whole connect timeout, so this is well above the handful that is really working.
	dialsTotal = 16
	// commandSessions and streamSessions together stay below MaxSessions 10 and leave two for people. They are
	// counted apart, so that long-lived streams cannot starve commands.
	commandSessions = 5
	streamSessions  = 3
)

// Options tune a pool; the zero value is right for production.
type Options struct {
	KeepaliveInterval time.Duration // time between keepalives; 0 means 15 s
	KeepaliveMisses   int           // unanswered keepalives in a row that end a connection; 0 means 3
	DialAttempts      int           // attempts at setting a connection up; 0 means 3
	BackoffBase       time.Duration // wait before the second attempt; 0 means 300 ms
	OutputLimit       int           // bytes of stdout and of stderr kept from a command; 0 means 8 MiB

	// Log receives one redacted line for each connection event; nil means none.
	Log func(msg string, kv ...any)
}

func (o Options) withDefaults() Options {
	if o.KeepaliveInterval <= 0 {
		o.KeepaliveInterval = 15 * time.Second
	}
	if o.KeepaliveMisses <= 0 {
		o.KeepaliveMisses = 3
	}
	if o.DialAttempts <= 0 {
		o.DialAttempts = 3
	}
	if o.BackoffBase <= 0 {
		o.BackoffBase = 300 * time.Millisecond
	}
	if o.OutputLimit <= 0 {
		o.OutputLimit = 8 << 20
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	return o
}

// Pool holds one connection for each distinct target. The zero value is not usable; call [NewPool]. It dials nothing
// until a connection is used.
type Pool struct {
	opts  Options
	total chan struct{}

	mu      sync.Mutex
	conns   map[string]*Conn
	servers map[string]chan struct{}
	closed  bool
}

// NewPool makes an empty pool.
func NewPool(opts Options) *Pool {
	return &Pool{
		opts: opts.withDefaults(), total: make(chan struct{}, dialsTotal),
		conns: map[string]*Conn{}, servers: map[string]chan struct{}{},
	}
}

// Conn returns the connection to t. Nothing is dialled before it is used; see [Conn.Connect]. An error is of class
// [ErrConfig] or [ErrClosed].
func (p *Pool) Conn(t Target) (*Conn, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	var via *Conn
	if v, ok := t.via(); ok {
		var err error
		if via, err = p.Conn(v); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, &Error{Class: ErrClosed, Target: t.String(), Step: StepConnect}
	}
	k := t.key()
	if c, ok := p.conns[k]; ok {
		return c, nil
	}
	c := newConn(p, t, via)
	p.conns[k] = c
	return c, nil
}

// Get returns the connection to t, set up.
func (p *Pool) Get(ctx context.Context, t Target) (*Conn, error) {
	c, err := p.Conn(t)
	if err != nil {
		return nil, err
	}
	return c, c.Connect(ctx)
}

// Close ends all connections. Commands in flight fail with [ErrDropped]; later uses fail with [ErrClosed].
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	conns := make([]*Conn, 0, len(p.conns))
	for _, c := range p.conns {
		conns = append(conns, c)
	}
	p.mu.Unlock()
	for _, c := range conns {
		c.shut()
	}
}

func (p *Pool) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// throttle waits for a place to set a connection up in, towards addr. Nobody holds a place while waiting for a
// bastion's own connection, so places cannot wait for each other.
func (p *Pool) throttle(ctx context.Context, addr string) (release func(), err error) {
	p.mu.Lock()
	server, ok := p.servers[addr]
	if !ok {
		server = make(chan struct{}, dialsPerServer)
		p.servers[addr] = server
	}
	p.mu.Unlock()
	select {
	case server <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case p.total <- struct{}{}:
	case <-ctx.Done():
		<-server
		return nil, ctx.Err()
	}
	return func() { <-p.total; <-server }, nil
}
