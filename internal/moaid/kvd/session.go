package kvd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
)

// sessionQueue bounds packets that wait for a client to read.
const sessionQueue = 4096

// session is a connection to the engine socket. Its reader posts requests to the
// owner; its writer sends what the owner queued. Fields below the line belong to
// the owner.
type session struct {
	conn  *enginesock.Conn
	peer  enginesock.PeerCred
	log   *slog.Logger
	out   chan packet
	close func() // idempotent; ends reader and writer

	engine *engine // after hello
	kind   enginesock.SessionKind
	rank   int
	helloD bool
}

type packet struct {
	reply enginesock.Reply
	file  *os.File // of an arena; stays the arena's
}

// send queues a packet; a client that does not read loses its session.
func (s *session) send(r enginesock.Reply, file *os.File) {
	select {
	case s.out <- packet{r, file}:
	default:
		s.log.Warn("engine session closed: the client does not read its packets")
		s.close()
	}
}

func (s *session) ok(seq int64) { s.send(&enginesock.OK{Seq: seq}, nil) }

func (s *session) refuse(seq int64, code enginesock.Code, retry bool, why string) {
	s.send(&enginesock.Error{Seq: seq, Code: code, Message: why, Retry: retry}, nil)
}

// serveEngines accepts sessions until the listener closes.
func (d *Daemon) serveEngines(ctx context.Context, l *net.UnixListener) error {
	slots := make(chan struct{}, maxSessions)
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				continue
			}
			return err
		}
		select {
		case slots <- struct{}{}:
		default:
			d.metrics.authRejections.WithLabelValues("engine_sessions_full").Inc()
			_ = c.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			d.serveSession(ctx, enginesock.NewConn(c))
		})
	}
}

// serveSession reads requests until the client leaves or is silent for a lease.
func (d *Daemon) serveSession(ctx context.Context, conn *enginesock.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &session{conn: conn, log: d.log, out: make(chan packet, sessionQueue), close: cancel}
	var err error
	if s.peer, err = conn.Peer(); err != nil {
		d.log.Warn("engine session refused", "error", err)
		_ = conn.Close()
		return
	}
	s.log = d.log.With("pid", s.peer.PID, "uid", s.peer.UID)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { s.write(ctx) })
	err = d.readSession(ctx, s)
	d.own.post(func() { d.sessionGone(s) })
	cancel()
	wg.Wait()
	_ = conn.Close()
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
		s.log.Warn("engine session ended", "error", err)
	}
}

func (d *Daemon) readSession(ctx context.Context, s *session) error {
	last := int64(0)
	for {
		if err := s.conn.SetReadDeadline(time.Now().Add(d.lease)); err != nil {
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
		if _, ok := req.(*enginesock.Adopt); !ok {
			closeFile(file) // nobody asked for it
			file = nil
		}
		if !d.own.post(func() { d.onRequest(s, req, file) }) {
			closeFile(file)
			return nil
		}
	}
}

// write sends packets until ctx ends, and then what was queued before.
func (s *session) write(ctx context.Context) {
	for {
		select {
		case p := <-s.out:
			if !s.writeOne(p) {
				return
			}
		case <-ctx.Done():
			for {
				select {
				case p := <-s.out:
					if !s.writeOne(p) {
						return
					}
				default:
					return
				}
			}
		}
	}
}

func (s *session) writeOne(p packet) bool {
	b, err := enginesock.EncodeReply(p.reply)
	if err != nil {
		s.log.Error("engine session: an answer could not be encoded", "error", err)
		s.close()
		return false
	}
	err = s.conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
	if err == nil {
		err = s.conn.Write(b, p.file)
	}
	if err != nil {
		s.log.Debug("engine session: write failed", "error", err)
		s.close()
		return false
	}
	return true
}

func closeFile(f *os.File) {
	if f != nil {
		_ = f.Close()
	}
}
