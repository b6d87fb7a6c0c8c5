package enginesock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// ErrDown says that a request got no answer because the session ended, or never
// was. Whether the daemon acted on it is unknown; every request may be repeated.
var ErrDown = errors.New("no session with the KV daemon")

// Identity says who opens a session.
type Identity struct {
	Path  string // of the daemon's socket
	Hello Hello  // engine, generation, kind, ranks and sizes, fingerprint; the version is the client's
}

// hooks is what a kind of session adds to the connection.
type hooks struct {
	// open runs after hello was accepted and before any other request; restarted
	// says that the daemon is another instance than before.
	open func(ctx context.Context, ok *OK, restarted bool) error
	// event takes what the daemon says unasked.
	event func(Reply)
	// down runs when a session has ended.
	down func()
}

// call is a request that waits for its answer. done is called exactly once,
// possibly from the reading goroutine: it must not block.
type call struct {
	req  Request
	file *os.File
	done func(*OK, *os.File, error)
}

// session keeps one session with a daemon open: it dials, says hello, pings, and
// starts again when the connection is lost.
type session struct {
	id    Identity
	hooks hooks
	log   *slog.Logger

	mu       sync.Mutex
	conn     *Conn // nil while there is no connection
	up       bool  // hello and open have succeeded
	seq      int64
	pending  map[int64]call
	queue    []call
	wake     chan struct{} // tells the writer that the queue has grown
	lease    time.Duration
	instance string
	told     Registration
	lastErr  error
}

// Registration is what the daemon says in its answer to hello of what the engine
// was registered with.
type Registration struct {
	Node              string // name of the node; "" before the first session, or with a daemon that does not say it
	OnTransferFailure string // recompute, fail, or "" if the registration leaves it to the engine
}

const (
	dialTimeout  = 2 * time.Second
	redialFirst  = 50 * time.Millisecond
	redialMax    = time.Second
	defaultLease = 10 * time.Second
)

func newSession(id Identity, h hooks, log *slog.Logger) *session {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	id.Hello.Version = Version
	return &session{id: id, hooks: h, log: log.With("session", string(id.Hello.Session), "rank", id.Hello.Rank, "data_rank", id.Hello.DataRank), lastErr: ErrDown}
}

// run keeps the session until ctx ends.
func (s *session) run(ctx context.Context) {
	wait := redialFirst
	for ctx.Err() == nil {
		began := time.Now()
		err := s.once(ctx)
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		changed := s.lastErr == nil || s.lastErr.Error() != err.Error()
		s.lastErr = err
		s.mu.Unlock()
		if changed {
			s.log.Warn("no session with the KV daemon", "err", err)
		}
		if time.Since(began) > redialMax {
			wait = redialFirst
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, redialMax)
	}
}

// once is one connection, from dial to its end.
func (s *session) once(ctx context.Context) error {
	dctx, cancel := context.WithTimeout(ctx, dialTimeout)
	conn, err := Dial(dctx, s.id.Path)
	cancel()
	if err != nil {
		return err
	}
	ctx, cancel = context.WithCancel(ctx)
	wake := make(chan struct{}, 1)
	s.mu.Lock()
	s.conn, s.seq, s.pending, s.queue, s.wake = conn, 0, map[int64]call{}, nil, wake
	s.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() {
		<-ctx.Done()
		_ = conn.Close()
	})
	readErr := make(chan error, 1)
	wg.Go(func() {
		readErr <- s.read(conn)
		cancel()
	})
	wg.Go(func() { s.write(ctx, conn, wake, cancel) })
	// Pings begin with the lease: what follows hello, making an arena, may take
	// longer than that.
	err = s.open(ctx, func() { wg.Go(func() { s.ping(ctx) }) })
	if err == nil {
		<-ctx.Done()
	}
	cancel()
	s.end()
	wg.Wait()
	return errors.Join(err, <-readErr)
}

func (s *session) open(ctx context.Context, admitted func()) error {
	hello := s.id.Hello
	ok, _, err := s.do(ctx, &hello, nil)
	if err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	s.mu.Lock()
	s.lease = defaultLease
	if ok.LeaseMillis > 0 {
		s.lease = time.Duration(ok.LeaseMillis) * time.Millisecond
	}
	restarted := s.instance != "" && s.instance != ok.Instance
	s.instance = ok.Instance
	s.told = Registration{Node: ok.Node, OnTransferFailure: ok.OnTransferFailure}
	s.mu.Unlock()
	admitted()
	if s.hooks.open != nil {
		if err := s.hooks.open(ctx, ok, restarted); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.up, s.lastErr = true, nil
	s.mu.Unlock()
	s.log.Info("session with the KV daemon", "instance", ok.Instance)
	return nil
}

// end fails everything that waits for an answer.
func (s *session) end() {
	s.mu.Lock()
	lost := s.queue
	for _, c := range s.pending {
		lost = append(lost, c)
	}
	s.conn, s.up, s.pending, s.queue = nil, false, nil, nil
	s.mu.Unlock()
	for _, c := range lost {
		c.done(nil, nil, ErrDown)
	}
	if s.hooks.down != nil {
		s.hooks.down()
	}
}

func (s *session) read(conn *Conn) error {
	for {
		b, file, err := conn.Read()
		if err != nil {
			return err
		}
		r, err := DecodeReply(b)
		if err != nil {
			closeFile(file)
			return err
		}
		switch m := r.(type) {
		case nil:
			closeFile(file)
		case *OK:
			s.answer(m.Seq, m, file, nil)
		case *Error:
			closeFile(file)
			s.answer(m.Seq, nil, nil, m)
		default:
			closeFile(file)
			if s.hooks.event != nil {
				s.hooks.event(r)
			}
		}
	}
}

func (s *session) answer(seq int64, ok *OK, file *os.File, err error) {
	s.mu.Lock()
	c, found := s.pending[seq]
	delete(s.pending, seq)
	s.mu.Unlock()
	if !found {
		closeFile(file)
		return
	}
	c.done(ok, file, err)
}

func (s *session) write(ctx context.Context, conn *Conn, wake <-chan struct{}, broken func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		for {
			s.mu.Lock()
			if s.conn != conn || len(s.queue) == 0 {
				s.mu.Unlock()
				break
			}
			c := s.queue[0]
			s.queue = s.queue[1:]
			s.seq++
			b, err := EncodeRequest(c.req, s.seq)
			if err == nil {
				s.pending[s.seq] = c
			}
			s.mu.Unlock()
			if err != nil {
				c.done(nil, nil, err)
				continue
			}
			if err := conn.Write(b, c.file); err != nil {
				broken()
				return
			}
		}
	}
}

func (s *session) ping(ctx context.Context) {
	t := time.NewTicker(max(s.leaseTime()/4, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.start(&Ping{}, nil, func(*OK, *os.File, error) {})
		}
	}
}

func (s *session) leaseTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease
}

// start queues a request and returns at once.
func (s *session) start(r Request, file *os.File, done func(*OK, *os.File, error)) {
	s.mu.Lock()
	if s.conn == nil {
		s.mu.Unlock()
		done(nil, nil, ErrDown)
		return
	}
	s.queue = append(s.queue, call{req: r, file: file, done: done})
	wake := s.wake
	s.mu.Unlock()
	select {
	case wake <- struct{}{}:
	default:
	}
}

// do sends a request and waits for its answer.
func (s *session) do(ctx context.Context, r Request, file *os.File) (*OK, *os.File, error) {
	type result struct {
		ok   *OK
		file *os.File
		err  error
	}
	ch := make(chan result, 1)
	s.start(r, file, func(ok *OK, f *os.File, err error) { ch <- result{ok, f, err} })
	select {
	case <-ctx.Done():
		go func() { closeFile((<-ch).file) }() // the answer, or the session's end, still comes
		if s.connected() {
			return nil, nil, ctx.Err()
		}
		return nil, nil, ErrDown
	case got := <-ch:
		return got.ok, got.file, got.err
	}
}

func (s *session) instanceNow() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.instance
}

func (s *session) registration() Registration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told
}

func (s *session) connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn != nil
}

// state is nil while the session is up, and otherwise why it is not.
func (s *session) state() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.up {
		return nil
	}
	return errors.Join(ErrDown, s.lastErr)
}

func closeFile(f *os.File) {
	if f != nil {
		_ = f.Close()
	}
}
