package kvd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/arena"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
)

// sessionQueue bounds packets that wait for a client to read: what an engine's
// transfers can have to say while its scheduler is away, and as much again.
const sessionQueue = 4 * maxTransfers

// strangerQueue is the same before hello was accepted: refusals.
const strangerQueue = 64

// session is a connection to the engine socket. Its reader posts requests to the
// owner; its writer sends what the owner queued. Fields below the line belong to
// the owner.
type session struct {
	conn  *enginesock.Conn
	peer  enginesock.PeerCred
	log   *slog.Logger
	out   outbox
	close func() // idempotent; ends reader and writer

	replica *replica // from hello until it ends or is replaced
	kind    enginesock.SessionKind
	rank    int

	home       *replica // whose it was, also afterwards
	generation string   // of home at hello

	known atomic.Bool // hello was accepted; the owner sets it, the reader asks
}

var errNoHello = errors.New("no hello was accepted within a lease")

type packet struct {
	reply enginesock.Reply
	file  *os.File // of an arena; stays the arena's
}

// send queues a packet; a client that does not read loses its session.
func (s *session) send(r enginesock.Reply, file *os.File) {
	limit := sessionQueue
	if !s.known.Load() {
		limit = strangerQueue
	}
	if !s.out.push(packet{r, file}, limit) {
		s.log.Warn("engine session closed: the client does not read its packets")
		s.close()
	}
}

// outbox is what waits to be written. It takes memory only for what is there.
type outbox struct {
	wake chan struct{} // holds a token while there may be something
	mu   sync.Mutex
	list []packet
}

func (o *outbox) push(p packet, limit int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.list) >= limit {
		return false
	}
	o.list = append(o.list, p)
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return true
}

func (o *outbox) take() []packet {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.list
	o.list = nil
	return list
}

func (s *session) ok(seq int64) { s.send(&enginesock.OK{Seq: seq}, nil) }

func (s *session) refuse(seq int64, code enginesock.Code, retry bool, why string) {
	s.send(&enginesock.Error{Seq: seq, Code: code, Message: why, Retry: retry}, nil)
}

// serveEngines accepts sessions until the listener closes.
func (d *Daemon) serveEngines(ctx context.Context, l *net.UnixListener) error {
	slots := &sessionSlots{users: map[int]int{}}
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := l.AcceptUnix()
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		case transport.IsTemporary(err):
			d.log.Warn("cannot accept an engine's connection, trying again", "error", err)
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		default:
			return fmt.Errorf("accept engines: %w", err)
		}
		wg.Go(func() { d.serveSession(ctx, enginesock.NewConn(c), slots) })
	}
}

// sessionSlots bounds sessions, of all users and of each: the socket is open to
// every user of the host, and one must not shut out the others' engines.
type sessionSlots struct {
	mu    sync.Mutex
	all   int
	users map[int]int
}

func (s *sessionSlots) enter(uid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxSessions || s.users[uid] >= maxUserSessions {
		return false
	}
	s.all++
	s.users[uid]++
	return true
}

func (s *sessionSlots) leave(uid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.users[uid]--; s.users[uid] == 0 {
		delete(s.users, uid)
	}
}

// serveSession reads requests until the client leaves or is silent for a lease.
func (d *Daemon) serveSession(ctx context.Context, conn *enginesock.Conn, slots *sessionSlots) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	peer, err := conn.Peer()
	if err != nil {
		d.log.Warn("engine session refused", "error", err)
		_ = conn.Close()
		return
	}
	if !slots.enter(peer.UID) {
		d.metrics.authRejections.WithLabelValues("engine_sessions_full").Inc()
		_ = conn.Close()
		return
	}
	defer slots.leave(peer.UID)
	s := &session{conn: conn, peer: peer, log: d.log, out: outbox{wake: make(chan struct{}, 1)}, close: cancel}
	s.log = d.log.With("pid", s.peer.PID, "uid", s.peer.UID)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { s.write(ctx) })
	err = d.readSession(ctx, s)
	d.own.post(func() { d.sessionGone(s) })
	cancel()
	wg.Wait()
	d.own.post(func() { d.undelivered(s) })
	_ = conn.Close()
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
		s.log.Warn("engine session ended", "error", err)
	}
}

func (d *Daemon) readSession(ctx context.Context, s *session) error {
	last := int64(0)
	began := time.Now()
	for {
		now := time.Now()
		if !s.known.Load() && now.Sub(began) >= d.lease {
			return errNoHello
		}
		if err := s.conn.SetReadDeadline(now.Add(d.lease)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		default:
		}
		b, file, err := s.conn.Read()
		if err != nil {
			return err
		}
		req, err := enginesock.DecodeRequest(b)
		var refused *enginesock.Refused
		if errors.As(err, &refused) {
			closeFile(file)
			s.send(refused.Reply(), nil)
			continue
		}
		if err != nil {
			closeFile(file)
			return err
		}
		if req.SeqNumber() <= last {
			closeFile(file)
			s.refuse(req.SeqNumber(), enginesock.CodeBadRequest, false, "seq does not ascend")
			continue
		}
		last = req.SeqNumber()
		if _, ok := req.(*enginesock.Adopt); !ok || !arena.Sealed(file) {
			// Nobody asked for it, or it is no arena. It is closed here: closing a
			// descriptor of the client's choice may block.
			closeFile(file)
			file = nil
		}
		if !d.own.post(func() { d.onRequest(s, req, file) }) {
			closeFile(file)
			return nil
		}
	}
}

// write sends packets until ctx ends, and then what was queued before. What it cannot
// send stays in the outbox.
func (s *session) write(ctx context.Context) {
	for ended := false; !ended; {
		select {
		case <-s.out.wake:
		case <-ctx.Done():
			ended = true
		}
		list := s.out.take()
		for i, p := range list {
			b, err := enginesock.EncodeReply(p.reply)
			if err != nil { // it would fail again
				s.log.Error("engine session: a packet could not be encoded", "type", p.reply.Type(), "error", err)
				s.out.putBack(list[i+1:])
				s.close()
				return
			}
			if err := s.writeOne(b, p.file); err != nil {
				s.log.Debug("engine session: write failed", "error", err)
				s.out.putBack(list[i:])
				s.close()
				return
			}
		}
	}
}

func (s *session) writeOne(b []byte, file *os.File) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	return s.conn.Write(b, file)
}

func closeFile(f *os.File) {
	if f != nil {
		_ = f.Close()
	}
}
