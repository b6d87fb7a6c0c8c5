package kvd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// fake is an engine: a scheduler and its workers.
type fake struct {
	t     *testing.T
	fp    kvcache.Fingerprint
	sched *enginesock.SchedulerClient
	work  []*enginesock.WorkerClient
	http  *httpEngine
	stop  func()

	dataRank, dataSize int
}

type httpEngine struct {
	socket string
	mu     sync.Mutex
	seen   []*http.Request
	answer http.HandlerFunc
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func registration(n *node, name, role string, fp kvcache.Fingerprint) api.Engine {
	return api.Engine{Name: name, UID: os.Getuid(), EngineRole: role, Fingerprint: fp, StagingBytes: 64 << 20, MaxInFlight: 2 << 20, HTTPSocket: filepath.Join(n.dir, name+".http")}
}

// engine registers a fake engine, starts it and waits until it is ready.
func (n *node) engine(name, role string, fp kvcache.Fingerprint) *fake {
	t := n.t
	t.Helper()
	reg := registration(n, name, role, fp)
	f := &fake{t: t, fp: fp, http: serveHTTP(t, reg.HTTPSocket)}
	must[*api.EngineStatus](t, "engine")(n.c.PutEngine(t.Context(), reg))
	f.start(n, name)
	st := must[*api.EngineStatus](t, "engine")(n.c.GetEngine(t.Context(), name, patience))
	if !st.Ready {
		t.Fatalf("engine %s is not ready: %s", name, st.Reason)
	}
	return f
}

func (f *fake) start(n *node, name string) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	h := enginesock.Hello{Version: enginesock.Version, Engine: name, Generation: newID(), Session: enginesock.Scheduler, World: f.fp.Ranks.Tensor, DataRank: f.dataRank, DataSize: f.dataSize, Fingerprint: f.fp}
	path := filepath.Join(n.dir, EngineSocket)
	f.sched = enginesock.NewScheduler(enginesock.Identity{Path: path, Hello: h}, nil, nil)
	f.work = nil
	sched := f.sched
	wg.Go(func() { sched.Run(ctx) })
	for rank := range f.fp.Ranks.Tensor {
		h.Session, h.Rank = enginesock.Worker, rank
		w := enginesock.NewWorker(enginesock.Identity{Path: path, Hello: h}, nil)
		f.work = append(f.work, w)
		wg.Go(func() { w.Run(ctx) })
	}
	f.stop = func() { cancel(); wg.Wait() }
	f.t.Cleanup(f.stop)
}

func serveHTTP(t *testing.T, socket string) *httpEngine {
	t.Helper()
	e := &httpEngine{socket: socket}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			return
		}
		e.mu.Lock()
		e.seen = append(e.seen, r)
		answer := e.answer
		e.mu.Unlock()
		if answer != nil {
			answer(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, "%s %s", r.Method, r.URL)
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return e
}

// answers sets what the engine says from now on; nil is its ordinary answer.
func (e *httpEngine) answers(h http.HandlerFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = h
}

func (e *httpEngine) requests() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.seen)
}

// slot is the byte that the fake model keeps at a payload offset.
func slot(id string, rank int, off int64) byte {
	return id[off%32] ^ byte(off>>3) ^ byte(off>>11) ^ byte(rank*37)
}

func tokenHash(tokens int, salt string) string {
	ids := make([]int, tokens)
	for i := range ids {
		ids[i] = i * len(salt)
	}
	return kvcache.TokenHash(ids)
}

// prefill reserves, offers and, unless store is false, stores everything.
func (f *fake) prefill(id string, tokens int, hash string, store bool) {
	f.t.Helper()
	f.sched.Reserve(id, tokens, nil)
	eventually(f.t, "pages for "+id, func() bool { s, _ := f.sched.Sending(id); return s.Extents != nil || s.Err != nil })
	s, _ := f.sched.Sending(id)
	if s.Err != nil {
		f.t.Fatal(s.Err)
	}
	f.sched.Offer(id, tokens, hash)
	if store {
		f.store(id, tokens)
	}
}

func (f *fake) store(id string, tokens int) {
	f.t.Helper()
	p, err := f.fp.PayloadFor(tokens)
	if err != nil {
		f.t.Fatal(err)
	}
	s, _ := f.sched.Sending(id)
	for rank, w := range f.work {
		err := w.Arena(s.Instance, func(mem []byte) error {
			off := int64(0)
			for _, e := range s.Extents[rank] {
				for i := range e.Length {
					mem[e.Offset+i] = slot(id, rank, off+i)
				}
				off += e.Length
			}
			if off != p.Bytes {
				return fmt.Errorf("rank %d was leased %d bytes for a payload of %d", rank, off, p.Bytes)
			}
			return nil
		})
		if err != nil {
			f.t.Fatal(err)
		}
		half := p.Bytes/2 + 7
		w.Stored(id, []kvcache.Range{{Offset: half, Length: p.Bytes - half}})
		w.Stored(id, []kvcache.Range{{Offset: 0, Length: half}})
	}
}

func (f *fake) claim(id string, tokens int, hash string, from int) {
	f.sched.Claim(enginesock.Claim{ID: id, Tokens: tokens, TokenHash: hash, FromToken: from, Source: enginesock.Endpoint{Node: "p", Engine: "prefill"}})
}

func (f *fake) verdict(id string) enginesock.ClaimState {
	f.t.Helper()
	var v enginesock.ClaimState
	eventually(f.t, "a verdict for "+id, func() bool { v, _ = f.sched.Poll(id); return v.Verdict != enginesock.Pending })
	return v
}

// compare checks the bytes of a ready claim, and gives how many there are.
func (f *fake) compare(id string, v enginesock.ClaimState) int64 {
	f.t.Helper()
	_, inst := f.sched.Poll(id)
	var n int64
	for rank, w := range f.work {
		err := w.Arena(inst, func(mem []byte) error {
			var got []byte
			for _, e := range v.Extents[rank] {
				got = append(got, mem[e.Offset:e.Offset+e.Length]...)
			}
			i := 0
			for _, r := range v.Ranges {
				for o := r.Offset; o < r.Offset+r.Length; o++ {
					if i >= len(got) || got[i] != slot(id, rank, o) {
						return fmt.Errorf("rank %d: payload byte %d is wrong", rank, o)
					}
					i++
				}
			}
			if i != len(got) {
				return fmt.Errorf("rank %d: extents hold %d bytes, ranges %d", rank, len(got), i)
			}
			n += int64(i)
			return nil
		})
		if err != nil {
			f.t.Fatal(err)
		}
	}
	return n
}

func (f *fake) load(id string, ok bool) {
	f.t.Helper()
	for _, w := range f.work {
		if err := w.Loaded(id, ok); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fake) released(id string) *enginesock.Released {
	f.t.Helper()
	var s enginesock.Sending
	eventually(f.t, "the end of "+id, func() bool { s, _ = f.sched.Sending(id); return s.Ended != nil })
	return s.Ended
}
