package conformance

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
)

func helloErrors(t *testing.T, e *env) {
	for name, c := range map[string]struct {
		spoil func(*enginesock.Hello)
		code  enginesock.Code
	}{
		"version":        {func(h *enginesock.Hello) { h.Version = 99 }, enginesock.CodeVersion},
		"unknown engine": {func(h *enginesock.Hello) { h.Engine = "nobody" }, enginesock.CodeUnknownEngine},
		"fingerprint":    {func(h *enginesock.Hello) { h.Fingerprint.Model.Weights = "other" }, enginesock.CodeFingerprint},
		"generation":     {func(h *enginesock.Hello) { h.Generation = "short" }, enginesock.CodeBadRequest},
		"rank":           {func(h *enginesock.Hello) { h.Rank = 1 }, enginesock.CodeBadRequest},
		"world":          {func(h *enginesock.Hello) { h.World = 2 }, enginesock.CodeBadRequest},
		"session":        {func(h *enginesock.Hello) { h.Session = "boss" }, enginesock.CodeBadRequest},
	} {
		h := e.hello(e.pair.Prefill, enginesock.Worker, e.genP)
		c.spoil(&h)
		_, err := e.client(t).Connect(e.pair.Prefill.Socket, h)
		if !errors.Is(err, &enginesock.Error{Code: c.code}) {
			t.Errorf("%s: got %v, want %s", name, err, c.code)
		}
	}
	ok, err := e.client(t).Connect(e.pair.Prefill.Socket, e.hello(e.pair.Prefill, enginesock.Scheduler, e.genP))
	if err != nil || ok.LeaseMillis < 1 || ok.MaxWaiting < 1 || ok.Instance == "" || ok.Node != e.pair.Prefill.Node || ok.OnTransferFailure != "recompute" {
		t.Errorf("a right hello: %+v, %v", ok, err)
	}
}

// raw is a connection without a client's good manners.
func raw(t *testing.T, s Side) *enginesock.Conn {
	t.Helper()
	c, err := enginesock.Dial(context.Background(), s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	return c
}

func readReply(t *testing.T, c *enginesock.Conn) enginesock.Reply {
	t.Helper()
	b, f, err := c.Read()
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	if f != nil {
		_ = f.Close()
	}
	r, err := enginesock.DecodeReply(b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sayHello(t *testing.T, e *env, c *enginesock.Conn) {
	t.Helper()
	h := e.hello(e.pair.Prefill, enginesock.Worker, e.genP)
	b, err := enginesock.EncodeRequest(&h, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write(b, nil); err != nil {
		t.Fatal(err)
	}
	if ok, is := readReply(t, c).(*enginesock.OK); !is || ok.Seq != 1 {
		t.Fatalf("hello was not accepted: %+v", ok)
	}
}

func firstRequest(t *testing.T, e *env) {
	c := raw(t, e.pair.Prefill)
	if err := c.Write([]byte(`{"t":"ping","seq":1}`), nil); err != nil {
		t.Fatal(err)
	}
	if r, is := readReply(t, c).(*enginesock.Error); !is || r.Seq != 1 {
		t.Errorf("a session without hello was answered %+v", r)
	}
}

func unknownType(t *testing.T, e *env) {
	c := raw(t, e.pair.Prefill)
	sayHello(t, e, c)
	for _, p := range []string{`{"t":"dance","seq":2}`, `{"t":"ping","seq":3,"later":[{"x":1}]}`} {
		if err := c.Write([]byte(p), nil); err != nil {
			t.Fatal(err)
		}
	}
	var refused *enginesock.Error
	var ok *enginesock.OK
	for range 2 { // in any order
		switch r := readReply(t, c).(type) {
		case *enginesock.Error:
			refused = r
		case *enginesock.OK:
			ok = r
		}
	}
	if refused == nil || refused.Code != enginesock.CodeUnknownType || refused.Seq != 2 {
		t.Errorf("an unknown type was answered %+v", refused)
	}
	if ok == nil || ok.Seq != 3 {
		t.Errorf("a ping with unknown fields was answered %+v", ok)
	}
}

// writeAny sends a packet that Conn would refuse.
func writeAny(c *enginesock.Conn, b []byte) error {
	_, _, err := c.Socket().WriteMsgUnix(b, nil, nil)
	return err
}

func malformed(t *testing.T, e *env) {
	for name, p := range map[string][]byte{
		"array":    []byte(`[1]`),
		"null":     []byte(`null`),
		"not JSON": []byte(`{"t":`),
		"too long": append([]byte(`{"t":"ping","seq":2,"x":"`), append(make([]byte, enginesock.MaxPacket), `"}`...)...),
	} {
		c := raw(t, e.pair.Prefill)
		sayHello(t, e, c)
		if err := writeAny(c, p); err != nil {
			t.Fatal(err)
		}
		if b, _, err := c.Read(); err == nil {
			t.Errorf("%s: the session goes on with %s", name, b)
		}
	}
}

func sealed(t *testing.T, e *env) {
	c := raw(t, e.pair.Prefill)
	sayHello(t, e, c)
	if err := c.Write([]byte(`{"t":"arena","seq":2}`), nil); err != nil {
		t.Fatal(err)
	}
	b, f, err := c.Read()
	if err != nil || f == nil {
		t.Fatalf("no descriptor with %s: %v", b, err)
	}
	defer func() { _ = f.Close() }()
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if want := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL; err != nil || seals&want != want {
		t.Errorf("seals %#x, %v", seals, err)
	}
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{0, st.Size() - 4096, st.Size() + 4096} {
		if err := f.Truncate(size); err == nil {
			t.Fatalf("a client could truncate the arena to %d", size)
		}
	}
}

func replaced(t *testing.T, e *env) {
	e.open()
	id := newID()
	e.reserve(id, tokens)
	again := e.connect(e.pair.Prefill, enginesock.Scheduler, e.genP)
	if r, err := e.p.Event(within); !errors.Is(err, ErrClosed) {
		t.Fatalf("the first scheduler goes on: %v, %v", r, err)
	}
	e.p = again
	e.offer(id, tokens)
	e.ok(e.p, &enginesock.Withdraw{ID: id})
	e.ended(id, "", enginesock.Withdrawn)
}

func newGeneration(t *testing.T, e *env) {
	e.open()
	id := newID()
	e.reserve(id, tokens)
	old := e.p
	e.p = e.connect(e.pair.Prefill, enginesock.Scheduler, newID())
	e.refused(e.p, &enginesock.Offer{ID: id, Tokens: tokens, TokenHash: prompt(tokens)}, enginesock.CodeConflict, enginesock.CodeUnknownID)
	for {
		if _, err := old.Event(within); errors.Is(err, ErrClosed) {
			break
		} else if err != nil {
			t.Fatalf("the session of the old generation goes on: %v", err)
		}
	}
	_, err := e.client(t).Connect(e.pair.Prefill.Socket, e.hello(e.pair.Prefill, enginesock.Scheduler, e.genP))
	if !errors.Is(err, &enginesock.Error{Code: enginesock.CodeGeneration}) {
		t.Errorf("the old generation came back: %v", err)
	}
}

func comesBack(t *testing.T, e *env) {
	e.open()
	id := newID()
	extents := e.reserve(id, tokens)
	payload := e.fill(extents)
	for _, c := range []Client{e.p, e.pw} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	e.p = e.connect(e.pair.Prefill, enginesock.Scheduler, e.genP)
	if _, err := e.pw.Connect(e.pair.Prefill.Socket, e.hello(e.pair.Prefill, enginesock.Worker, e.genP)); err != nil {
		t.Fatal(err)
	}
	if err := e.pw.Adopt(); err != nil {
		t.Fatalf("the arena was not taken back: %v", err)
	}
	if again := e.reserve(id, tokens); !equalExtents(again, extents) {
		t.Fatalf("reserved again: %v, before %v", again, extents)
	}
	e.offer(id, tokens)
	e.stored(id, whole(e.payload(tokens)))
	e.claim(id, tokens, 0)
	e.same(e.ready(id), payload, 0)
	e.loaded(id, true)
	e.ended(id, enginesock.Committed, enginesock.Committed)
}

func adopt(t *testing.T, e *env) {
	e.open()
	id := newID()
	e.reserve(id, tokens)
	e.pair.Prefill.Restart()
	for {
		if _, err := e.p.Event(within); errors.Is(err, ErrClosed) {
			break
		} else if err != nil {
			t.Fatalf("the session survived the daemon: %v", err)
		}
	}
	e.p = e.connect(e.pair.Prefill, enginesock.Scheduler, e.genP)
	if _, err := e.pw.Connect(e.pair.Prefill.Socket, e.hello(e.pair.Prefill, enginesock.Worker, e.genP)); err != nil {
		t.Fatal(err)
	}
	bad := raw(t, e.pair.Prefill)
	sayHello(t, e, bad) // a worker too: it replaces the client's for a moment
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "unsealed")
	defer func() { _ = f.Close() }()
	if err := f.Truncate(staging); err != nil {
		t.Fatal(err)
	}
	b, err := enginesock.EncodeRequest(&enginesock.Adopt{Arena: "x", Bytes: staging}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := bad.Write(b, f); err != nil {
		t.Fatal(err)
	}
	if r, is := readReply(t, bad).(*enginesock.Error); !is || r.Code != enginesock.CodeBadArena {
		t.Errorf("an arena without seals was answered %+v", r)
	}
	if _, err := e.pw.Connect(e.pair.Prefill.Socket, e.hello(e.pair.Prefill, enginesock.Worker, e.genP)); err != nil {
		t.Fatal(err)
	}
	if err := e.pw.Adopt(); err != nil {
		t.Fatalf("the restarted daemon did not take the arena: %v", err)
	}
	// The old transfer is gone, and a new one uses the adopted arena.
	e.refused(e.p, &enginesock.Offer{ID: id, Tokens: tokens, TokenHash: prompt(tokens)}, enginesock.CodeUnknownID)
	id = newID()
	payload := e.fill(e.reserve(id, tokens))
	e.offer(id, tokens)
	e.stored(id, whole(e.payload(tokens)))
	e.claim(id, tokens, 0)
	e.same(e.ready(id), payload, 0)
	e.loaded(id, true)
	e.ended(id, enginesock.Committed, enginesock.Committed)
}
