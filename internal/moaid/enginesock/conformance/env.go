package conformance

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
)

// within bounds the wait for anything that should come at once.
const within = 10 * time.Second

// replica is the sessions of one data-parallel replica of an engine.
type replica struct {
	side       Side
	data       int // its rank
	generation string
	sched      Client
	workers    []Client // by tensor-parallel rank
}

// env is the sessions of one case.
type env struct {
	t      *testing.T
	pair   Pair
	client Factory
	format Format

	prefill, decode []*replica
	p, d            *replica // those that the case's transfers are of
	hush            string   // an id whose end may not be told while another is awaited
}

// newEnv has replicas whose sessions are not open yet. Transfers go between
// replicas of different ranks, where there are several.
func newEnv(t *testing.T, pair Pair, f Factory, format Format) *env {
	e := &env{t: t, pair: pair, client: f, format: format}
	p, d := newID(), newID()
	for data := range format.Replicas {
		e.prefill = append(e.prefill, &replica{side: pair.Prefill, data: data, generation: p})
		e.decode = append(e.decode, &replica{side: pair.Decode, data: data, generation: d})
	}
	e.p, e.d = e.prefill[format.Replicas-1], e.decode[0]
	return e
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (e *env) hello(r *replica, kind enginesock.SessionKind, rank int) enginesock.Hello {
	return enginesock.Hello{Version: enginesock.Version, Engine: r.side.Engine, Generation: r.generation, Session: kind, Rank: rank, World: e.format.ranks(),
		DataRank: r.data, DataSize: e.format.Replicas, Fingerprint: e.format.Fingerprint}
}

func (e *env) reconnect(c Client, r *replica, kind enginesock.SessionKind, rank int) {
	e.t.Helper()
	if _, err := c.Connect(r.side.Socket, e.hello(r, kind, rank)); err != nil {
		e.t.Fatalf("%s %d of replica %d of %s: %v", kind, rank, r.data, r.side.Engine, err)
	}
}

func (e *env) connect(r *replica, kind enginesock.SessionKind, rank int) Client {
	e.t.Helper()
	c := e.client(e.t)
	e.reconnect(c, r, kind, rank)
	return c
}

// open opens all sessions and arenas.
func (e *env) open() {
	e.t.Helper()
	for _, r := range slices.Concat(e.prefill, e.decode) {
		e.openReplica(r)
	}
}

func (e *env) openReplica(r *replica) {
	e.t.Helper()
	r.sched = e.connect(r, enginesock.Scheduler, 0)
	r.workers = nil
	for rank := range e.format.ranks() {
		w := e.connect(r, enginesock.Worker, rank)
		if ok, err := w.OpenArena(); err != nil || ok.Bytes < 1 || ok.Arena == "" {
			e.t.Fatalf("arena: %+v, %v", ok, err)
		}
		r.workers = append(r.workers, w)
	}
}

// lose closes a session and opens it again; a worker gives its arena back.
func (e *env) lose(r *replica, kind enginesock.SessionKind, rank int) {
	e.t.Helper()
	c := r.sched
	if kind == enginesock.Worker {
		c = r.workers[rank]
	}
	if err := c.Close(); err != nil {
		e.t.Fatal(err)
	}
	e.reconnect(c, r, kind, rank)
	if kind == enginesock.Worker {
		if err := c.Adopt(); err != nil {
			e.t.Fatalf("the arena was not taken back: %v", err)
		}
	}
}

func (e *env) ok(c Client, r enginesock.Request) *enginesock.OK {
	e.t.Helper()
	ok, err := c.Request(r)
	if err != nil {
		e.t.Fatalf("%s: %v", r.Type(), err)
	}
	return ok
}

// refused checks that a request is answered with one of the codes.
func (e *env) refused(c Client, r enginesock.Request, codes ...enginesock.Code) {
	e.t.Helper()
	_, err := c.Request(r)
	var got *enginesock.Error
	if !errors.As(err, &got) || !slices.Contains(codes, got.Code) {
		e.t.Fatalf("%s: got %v, want code %v", r.Type(), err, codes)
	}
}

// event waits for an event of the id and of type T; others of other ids are passed over.
func event[T enginesock.Reply](e *env, c Client, id string) T {
	e.t.Helper()
	deadline := time.Now().Add(within)
	for {
		r, err := c.Event(time.Until(deadline))
		if err != nil {
			e.t.Fatalf("waiting for %T of %s: %v", *new(T), id, err)
		}
		if _, verdict := r.(*enginesock.VerdictEvent); !verdict && e.hush != "" && eventID(r) == e.hush {
			e.t.Fatalf("%+v was said too early", r)
		}
		if got, ok := r.(T); ok && (id == "" || eventID(r) == id) {
			return got
		}
	}
}

// ends waits until the daemon has closed a session.
func (e *env) ends(c Client) {
	e.t.Helper()
	for {
		switch r, err := c.Event(within); {
		case errors.Is(err, ErrClosed):
			return
		case err != nil:
			e.t.Fatalf("the session goes on: %v, %v", r, err)
		}
	}
}

// silent checks that nothing more is said of the id for a while.
func (e *env) silent(c Client, id string) {
	e.t.Helper()
	e.nothing(c, id, 100*time.Millisecond)
}

// once checks that nothing more of the id was said together with what was: a
// session's packets come in order, so before the answer to what is asked now.
func (e *env) once(c Client, id string) {
	e.t.Helper()
	e.ok(c, &enginesock.Ping{})
	e.nothing(c, id, 0)
}

func (e *env) nothing(c Client, id string, within time.Duration) {
	e.t.Helper()
	for {
		r, err := c.Event(within)
		if err != nil {
			return
		}
		if eventID(r) == id {
			e.t.Fatalf("%s was said of %s, which had ended", r.Type(), id)
		}
	}
}

func eventID(r enginesock.Reply) string {
	switch m := r.(type) {
	case *enginesock.Released:
		return m.ID
	case *enginesock.VerdictEvent:
		return m.ID
	case *enginesock.Closed:
		return m.ID
	}
	return ""
}
