package kvd

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/arena"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
)

// rawSession is a connection without a client's good manners.
type rawSession struct {
	t    *testing.T
	conn *enginesock.Conn
	seq  int64
}

func dialRaw(t *testing.T, n *node) *rawSession {
	t.Helper()
	c := must[*enginesock.Conn](t, "dial")(enginesock.Dial(t.Context(), filepath.Join(n.dir, EngineSocket)))
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &rawSession{t: t, conn: c}
}

// ask sends a request and gives the next packet, with its descriptor.
func (s *rawSession) ask(r enginesock.Request, file *os.File) (enginesock.Reply, *os.File, error) {
	s.seq++
	b, err := enginesock.EncodeRequest(r, s.seq)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.conn.Write(b, file); err != nil {
		return nil, nil, err
	}
	in, got, err := s.conn.Read()
	if err != nil {
		return nil, nil, err
	}
	reply, err := enginesock.DecodeReply(in)
	return reply, got, err
}

// A process that is no engine must not keep a session by talking.
func TestHelloHasADeadline(t *testing.T) {
	n := newNode(t, "p", func(o *Options) { o.LeaseMillis = 100 })
	s := dialRaw(t, n)
	eventually(t, "the session of a stranger ends", func() bool {
		r, _, err := s.ask(&enginesock.Ping{}, nil)
		if err != nil {
			return true
		}
		var e *enginesock.Error
		if e, _ = r.(*enginesock.Error); e == nil || e.Code != enginesock.CodeUnauthorized {
			t.Fatalf("%+v", r)
		}
		return false
	})
}

func TestSlotsOfOneUser(t *testing.T) {
	s := &sessionSlots{users: map[int]int{}}
	n := 0
	for s.enter(1) {
		n++
	}
	if n != maxUserSessions || !s.enter(2) {
		t.Fatalf("one user had %d sessions, and another none", n)
	}
	s.leave(1)
	if !s.enter(1) {
		t.Error("a slot was not given back")
	}
}

// An arena belongs to one rank: two that share one would overwrite each other.
// What is no arena is not even looked at.
func TestAdoptedDescriptors(t *testing.T) {
	n := newNode(t, "p", nil)
	must[*api.EngineStatus](t, "engine")(n.c.PutEngine(t.Context(), registration(n, "prefill", "prefill", testFingerprint())))
	gen := newID()
	hello := func(s *rawSession, rank int) {
		h := enginesock.Hello{Version: enginesock.Version, Engine: "prefill", Generation: gen, Session: enginesock.Worker, Rank: rank, World: 2, Fingerprint: testFingerprint()}
		if r, _, err := s.ask(&h, nil); err != nil || r.Type() != enginesock.TypeOK {
			t.Fatalf("%+v %v", r, err)
		}
	}
	first, second := dialRaw(t, n), dialRaw(t, n)
	hello(first, 0)
	hello(second, 1)
	r, file, err := first.ask(&enginesock.Arena{}, nil)
	ok, is := r.(*enginesock.OK)
	if err != nil || !is || file == nil {
		t.Fatalf("%+v %v", r, err)
	}
	defer closeFile(file)
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer closeFile(pr)
	defer closeFile(pw)
	for what, f := range map[string]*os.File{"another rank's arena": file, "a pipe": pr, "nothing": nil} {
		r, _, err := second.ask(&enginesock.Adopt{Arena: "x", Bytes: ok.Bytes}, f)
		var e *enginesock.Error
		if e, _ = r.(*enginesock.Error); err != nil || e == nil || e.Code != enginesock.CodeBadArena {
			t.Errorf("%s was taken: %+v %v", what, r, err)
		}
	}
	if !arena.Sealed(file) || arena.Sealed(pr) || arena.Sealed(nil) {
		t.Error("seals")
	}
}

func TestOutboxIsBounded(t *testing.T) {
	o := outbox{wake: make(chan struct{}, 1)}
	n := 0
	for o.push(packet{}, sessionQueue) {
		n++
	}
	if n != sessionQueue || len(o.take()) != n || !o.push(packet{}, 1) {
		t.Errorf("%d packets", n)
	}
	if 2*maxTransfers > sessionQueue {
		t.Error("events of a scheduler that was away do not fit")
	}
}

// A stranger that asks and does not read loses its session before its refusals
// take memory worth mentioning.
func TestStrangerThatDoesNotRead(t *testing.T) {
	s := &session{log: slog.New(slog.DiscardHandler), out: outbox{wake: make(chan struct{}, 1)}}
	closed := false
	s.close = func() { closed = true }
	for range strangerQueue {
		s.refuse(1, enginesock.CodeUnauthorized, false, "no")
	}
	if closed {
		t.Fatal("closed too early")
	}
	if s.refuse(1, enginesock.CodeUnauthorized, false, "no"); !closed || len(s.out.take()) != strangerQueue {
		t.Error("the queue of a stranger grows")
	}
}
