package conformance

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
)

// GoClient is a Factory of clients over enginesock's connection and codec.
func GoClient(t testing.TB) Client {
	c := &goClient{verdicts: map[string]enginesock.ClaimState{}, reported: map[string]bool{}}
	t.Cleanup(func() {
		_ = c.Close()
		if c.mem != nil {
			_ = unix.Munmap(c.mem)
			_ = c.file.Close()
		}
	})
	return c
}

type goClient struct {
	conn   *enginesock.Conn
	events chan enginesock.Reply
	ended  chan struct{}

	mu       sync.Mutex
	seq      int64
	waiting  map[int64]chan goAnswer
	verdicts map[string]enginesock.ClaimState
	reported map[string]bool

	name string
	file *os.File
	mem  []byte
}

type goAnswer struct {
	ok   *enginesock.OK
	file *os.File
	err  error
}

func (c *goClient) Connect(path string, hello enginesock.Hello) (*enginesock.OK, error) {
	conn, err := enginesock.Dial(context.Background(), path)
	if err != nil {
		return nil, err
	}
	waiting := map[int64]chan goAnswer{}
	c.events, c.ended = make(chan enginesock.Reply, 64), make(chan struct{})
	c.mu.Lock()
	c.conn, c.seq, c.waiting = conn, 0, waiting
	c.mu.Unlock()
	go c.read(conn, waiting, c.ended, c.events)
	ok, err := c.Request(&hello)
	if err == nil {
		go c.ping(c.ended, time.Duration(ok.LeaseMillis)*time.Millisecond/4)
	}
	return ok, err
}

func (c *goClient) ping(ended <-chan struct{}, every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ended:
			return
		case <-t.C:
			if _, err := c.Request(&enginesock.Ping{}); errors.Is(err, ErrClosed) {
				return
			}
		}
	}
}

// read has its own view of the connection: after a reconnect the old one must not
// answer the new one's requests.
func (c *goClient) read(conn *enginesock.Conn, waiting map[int64]chan goAnswer, ended chan struct{}, events chan enginesock.Reply) {
	defer close(ended)
	for {
		b, file, err := conn.Read()
		if err != nil {
			return
		}
		r, err := enginesock.DecodeReply(b)
		if err != nil {
			return
		}
		c.mu.Lock()
		switch m := r.(type) {
		case *enginesock.OK:
			waiting[m.Seq] <- goAnswer{ok: m, file: file}
			delete(waiting, m.Seq)
		case *enginesock.Error:
			waiting[m.Seq] <- goAnswer{err: m}
			delete(waiting, m.Seq)
		case *enginesock.VerdictEvent:
			c.verdicts[m.ID] = m.ClaimState
			events <- r
		case *enginesock.Closed:
			delete(c.verdicts, m.ID)
			events <- r
		case nil:
		default:
			events <- r
		}
		c.mu.Unlock()
	}
}

func (c *goClient) Request(r enginesock.Request) (*enginesock.OK, error) {
	a := c.send(r, nil)
	return a.ok, a.err
}

func (c *goClient) send(r enginesock.Request, file *os.File) goAnswer {
	done := make(chan goAnswer, 1)
	c.mu.Lock()
	c.seq++
	b, err := enginesock.EncodeRequest(r, c.seq)
	if err == nil {
		c.waiting[c.seq] = done
		err = c.conn.Write(b, file)
	}
	ended := c.ended
	c.mu.Unlock()
	if errors.Is(err, enginesock.ErrMalformed) {
		return goAnswer{err: err}
	}
	select {
	case a := <-done:
		return a
	case <-ended:
		return goAnswer{err: ErrClosed}
	}
}

func (c *goClient) Event(within time.Duration) (enginesock.Reply, error) {
	select {
	case e := <-c.events:
		return e, nil
	default:
	}
	select {
	case e := <-c.events:
		return e, nil
	case <-c.ended:
		return nil, ErrClosed
	case <-time.After(within):
		return nil, ErrTimeout
	}
}

func (c *goClient) Claim(m enginesock.Claim) (*enginesock.OK, error) {
	ok, err := c.Request(&m)
	if err == nil && ok.Verdict != enginesock.Pending {
		c.mu.Lock()
		c.verdicts[m.ID] = ok.ClaimState
		c.mu.Unlock()
	}
	return ok, err
}

func (c *goClient) Poll(id string) (enginesock.ClaimState, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.verdicts[id]; ok {
		return v, nil
	}
	return enginesock.ClaimState{Verdict: enginesock.Pending}, nil
}

func (c *goClient) OpenArena() (*enginesock.OK, error) {
	a := c.send(&enginesock.Arena{}, nil)
	if a.err != nil {
		return nil, a.err
	}
	if a.file == nil {
		return nil, errors.New("the arena came without a descriptor")
	}
	mem, err := unix.Mmap(int(a.file.Fd()), 0, int(a.ok.Bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	c.name, c.file, c.mem = a.ok.Arena, a.file, mem
	return a.ok, nil
}

func (c *goClient) Adopt() error {
	return c.send(&enginesock.Adopt{Arena: c.name, Bytes: int64(len(c.mem))}, c.file).err
}

func (c *goClient) Read(offset, length int64) ([]byte, error) {
	return append([]byte(nil), c.mem[offset:offset+length]...), nil
}

func (c *goClient) Write(offset int64, b []byte) error {
	copy(c.mem[offset:], b)
	return nil
}

func (c *goClient) Loaded(id string, ok bool) error {
	if c.reported[id] {
		return enginesock.ErrReported
	}
	c.reported[id] = true
	_, err := c.Request(&enginesock.Loaded{ID: id, OK: ok})
	return err
}

func (c *goClient) Close() error {
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}
