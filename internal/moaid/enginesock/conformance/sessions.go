package conformance

import (
	"context"
	"errors"
	"os"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

func helloErrors(t *testing.T, e *env) {
	for name, c := range map[string]struct {
		spoil func(*enginesock.Hello)
		code  enginesock.Code
	}{
		"version":        {func(h *enginesock.Hello) { h.Version = 99 }, enginesock.CodeVersion},
		"version 0":      {func(h *enginesock.Hello) { h.Version = 0 }, enginesock.CodeVersion},
		"unknown engine": {func(h *enginesock.Hello) { h.Engine = "nobody" }, enginesock.CodeUnknownEngine},
		"fingerprint":    {func(h *enginesock.Hello) { h.Fingerprint.Model.Weights = "other" }, enginesock.CodeFingerprint},
		"generation":     {func(h *enginesock.Hello) { h.Generation = "short" }, enginesock.CodeBadRequest},
		"rank":           {func(h *enginesock.Hello) { h.Rank = h.World }, enginesock.CodeBadRequest},
		"world":          {func(h *enginesock.Hello) { h.World *= 2 }, enginesock.CodeBadRequest},
		"session":        {func(h *enginesock.Hello) { h.Session = "boss" }, enginesock.CodeBadRequest},
		"data rank":      {func(h *enginesock.Hello) { h.DataRank = h.DataSize }, enginesock.CodeBadRequest},
		"data size":      {func(h *enginesock.Hello) { h.DataSize++ }, enginesock.CodeBadRequest},
	} {
		h := e.hello(e.p, enginesock.Worker, 0)
		c.spoil(&h)
		_, err := e.client(t).Connect(e.p.side.Socket, h)
		if !errors.Is(err, &enginesock.Error{Code: c.code}) {
			t.Errorf("%s: got %v, want %s", name, err, c.code)
		}
	}
	ok, err := e.client(t).Connect(e.p.side.Socket, e.hello(e.p, enginesock.Scheduler, 0))
	if err != nil || ok.LeaseMillis < 1 || ok.MaxWaiting < 1 || ok.Instance == "" || ok.Node != e.p.side.Node || ok.OnTransferFailure != "recompute" {
		t.Errorf("a right hello: %+v, %v", ok, err)
	}
	if e.format.Replicas == 1 { // an engine that says nothing of replicas has one
		h := e.hello(e.p, enginesock.Scheduler, 0)
		h.DataSize = 0
		if _, err := e.client(t).Connect(e.p.side.Socket, h); err != nil {
			t.Errorf("a hello without data_size: %v", err)
		}
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
	h := e.hello(e.p, enginesock.Worker, 0)
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
	c := raw(t, e.p.side)
	if err := c.Write([]byte(`{"t":"ping","seq":1}`), nil); err != nil {
		t.Fatal(err)
	}
	if r, is := readReply(t, c).(*enginesock.Error); !is || r.Seq != 1 {
		t.Errorf("a session without hello was answered %+v", r)
	}
}

func unknownType(t *testing.T, e *env) {
	c := raw(t, e.p.side)
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
		c := raw(t, e.p.side)
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
	c := raw(t, e.p.side)
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

// kinds: what one kind of session may ask, the other may not.
func kinds(_ *testing.T, e *env) {
	f := e.begun()
	whole := []kvcache.Range{{Length: 1}}
	for _, r := range []enginesock.Request{&enginesock.Arena{}, &enginesock.Stored{ID: f.id, Ranges: whole}, &enginesock.Loaded{ID: f.id, OK: true}} {
		e.refused(f.p.sched, r, enginesock.CodeBadRequest)
	}
	claim := f.claimRequest(0)
	for _, w := range f.p.workers {
		for _, r := range []enginesock.Request{f.reserveRequest(), f.offerRequest(), &enginesock.Withdraw{ID: f.id}, &claim, &enginesock.Release{ID: f.id}, &enginesock.Stats{}} {
			e.refused(w, r, enginesock.CodeBadRequest)
		}
	}
	e.ok(f.p.sched, &enginesock.Stats{Running: 1, KVBlocksTotal: 8})
}

func replaced(t *testing.T, e *env) {
	e.open()
	f := e.flow()
	f.reserve()
	again := e.connect(f.p, enginesock.Scheduler, 0)
	if r, err := f.p.sched.Event(within); !errors.Is(err, ErrClosed) {
		t.Fatalf("the first scheduler goes on: %v, %v", r, err)
	}
	f.p.sched = again
	f.offer()
	e.ok(f.p.sched, &enginesock.Withdraw{ID: f.id})
	f.ended("", enginesock.Withdrawn)
}

func newGeneration(t *testing.T, e *env) {
	e.open()
	f := e.flow()
	f.reserve()
	old := *f.p
	f.p.generation = newID()
	f.p.sched = e.connect(f.p, enginesock.Scheduler, 0)
	e.refused(f.p.sched, f.offerRequest(), enginesock.CodeConflict, enginesock.CodeUnknownID)
	e.ends(old.sched)
	for _, w := range old.workers {
		e.ends(w)
	}
	_, err := e.client(t).Connect(old.side.Socket, e.hello(&old, enginesock.Scheduler, 0))
	if !errors.Is(err, &enginesock.Error{Code: enginesock.CodeGeneration}) {
		t.Errorf("the old generation came back: %v", err)
	}
}

func comesBack(t *testing.T, e *env) {
	f := e.begun()
	before := f.extents
	e.lose(f.p, enginesock.Scheduler, 0)
	for rank := range f.own {
		e.lose(f.p, enginesock.Worker, rank)
	}
	if f.reserve(); !reflect.DeepEqual(f.extents, before) {
		t.Fatalf("reserved again: %v, before %v", f.extents, before)
	}
	f.offer()
	f.store()
	f.claim(0)
	f.committed(0)
}

// endsWhileAway: what happens while a scheduler is away is learnt by asking
// again, also if the event that told it was lost with the session.
func endsWhileAway(t *testing.T, e *env) {
	f := e.begun()
	f.offer()
	f.claim(0)
	if err := f.d.sched.Close(); err != nil {
		t.Fatal(err)
	}
	f.store()
	e.reconnect(f.d.sched, f.d, enginesock.Scheduler, 0)
	f.claim(0)
	f.received(0)
	if err := f.p.sched.Close(); err != nil {
		t.Fatal(err)
	}
	f.load()
	if c := event[*enginesock.Closed](e, f.d.sched, f.id); c.Outcome != enginesock.Committed {
		t.Fatalf("decode was told %q", c.Outcome)
	}
	next := e.flow() // after which the other daemon knows of the end
	e.reconnect(f.p.sched, f.p, enginesock.Scheduler, 0)
	next.fill()
	next.offer()
	next.store()
	next.claim(0)
	next.committed(0)
	e.refused(f.p.sched, f.reserveRequest(), enginesock.CodeConflict)
}

func adopt(t *testing.T, e *env) {
	e.open()
	f := e.flow()
	f.reserve()
	f.p.side.Restart()
	for _, r := range e.prefill {
		e.ends(r.sched)
		r.sched = e.connect(r, enginesock.Scheduler, 0)
	}
	refuseUnsealed(t, e)
	for _, r := range e.prefill {
		for rank, w := range r.workers {
			e.reconnect(w, r, enginesock.Worker, rank)
			if err := w.Adopt(); err != nil {
				t.Fatalf("the restarted daemon did not take the arena: %v", err)
			}
		}
	}
	// The old transfer is gone, and a new one uses the adopted arena.
	e.refused(f.p.sched, f.offerRequest(), enginesock.CodeUnknownID)
	next := e.flow()
	next.fill()
	next.offer()
	next.store()
	next.claim(0)
	next.committed(0)
}

// refuseUnsealed gives the daemon an arena that its giver could still shrink.
func refuseUnsealed(t *testing.T, e *env) {
	t.Helper()
	bad := raw(t, e.p.side)
	sayHello(t, e, bad)
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "unsealed")
	defer func() { _ = f.Close() }()
	if err := f.Truncate(arenaBytes); err != nil {
		t.Fatal(err)
	}
	b, err := enginesock.EncodeRequest(&enginesock.Adopt{Arena: "x", Bytes: arenaBytes}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := bad.Write(b, f); err != nil {
		t.Fatal(err)
	}
	if r, is := readReply(t, bad).(*enginesock.Error); !is || r.Code != enginesock.CodeBadArena {
		t.Errorf("an arena without seals was answered %+v", r)
	}
}
