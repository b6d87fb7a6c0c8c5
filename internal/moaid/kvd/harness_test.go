package kvd

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
)

const patience = 10 * time.Second

func testFingerprint() kvcache.Fingerprint {
	return kvcache.Fingerprint{ModelHash: "m", Engine: "fake/0", DType: kvcache.BF16, Layout: kvcache.LayoutLBHNC, BlockSize: 16, KVHeads: 8, HeadDim: 64, TensorSize: 2,
		Groups: []kvcache.Group{{Kind: kvcache.GroupFull, Layers: []int{0, 2, 4}}, {Kind: kvcache.GroupSliding, Window: 32, Layers: []int{1, 3, 5}}}}
}

// node is a daemon under test and how to reach it.
type node struct {
	t    *testing.T
	name string
	dir  string
	opts Options
	addr string
	c    *client.Client
	d    *Daemon
	stop func()
	logs *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// shortDir keeps socket paths below the 107 bytes that the kernel allows.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kvd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newNode(t *testing.T, name string, change func(*Options)) *node {
	t.Helper()
	dir := shortDir(t)
	n := &node{t: t, name: name, dir: dir, logs: &lockedBuffer{}}
	n.opts = Options{Config: Config{Node: name, Listen: []string{"127.0.0.1:0"}, StateDir: dir, RunDir: dir}, Timeouts: transfer.DefaultTimeouts(),
		Timing: transport.Timing{BackoffMin: 20 * time.Millisecond, BackoffMax: 100 * time.Millisecond}}
	n.opts.Log = slog.New(slog.NewJSONHandler(n.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if change != nil {
		change(&n.opts)
	}
	n.c = client.New(func(ctx context.Context) (net.Conn, error) {
		var nd net.Dialer
		return nd.DialContext(ctx, "unix", filepath.Join(dir, ManageSocket))
	})
	n.start()
	t.Cleanup(func() {
		n.stop()
		n.c.Close()
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, n.logs)
		}
	})
	return n
}

// start runs the daemon; after a stop it keeps the port.
func (n *node) start() {
	n.t.Helper()
	if n.addr != "" {
		n.opts.Listen = []string{n.addr}
	}
	d, err := New(n.opts)
	if err != nil {
		n.t.Fatal(err)
	}
	n.d = d
	ctx, cancel := context.WithCancel(context.Background())
	up := make(chan string, 1)
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx, func(a []net.Addr) { up <- a[0].String() }) }()
	select {
	case n.addr = <-up:
	case err := <-done:
		n.t.Fatalf("daemon %s: %v", n.name, err)
	}
	var once sync.Once
	n.stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					n.t.Errorf("daemon %s: %v", n.name, err)
				}
			case <-time.After(patience):
				n.t.Errorf("daemon %s did not stop", n.name)
			}
			n.c.Close()
		})
	}
}

func (n *node) key() string { return n.d.identity.PublicString() }

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func must[T any](t *testing.T, what string) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return v
	}
}

// link connects p (dialling) and q.
func link(t *testing.T, p, q *node, enc api.Encryption) {
	t.Helper()
	for _, x := range []struct {
		us, them *node
		dial     bool
	}{{p, q, true}, {q, p, false}} {
		must[*api.Trust](t, "trust")(x.us.c.PutTrust(t.Context(), api.Trust{Name: "peer-" + x.them.name, PublicKey: x.them.key(), Role: api.RolePeer, Node: x.them.name}))
		must[*api.LinkStatus](t, "link")(x.us.c.PutLink(t.Context(), api.Link{Name: "main", Peer: x.them.name, PeerKey: x.them.key(), Addresses: []string{x.them.addr}, Dial: x.dial, Transport: "tcp", Encryption: enc, Streams: 3}))
	}
	waitLink(t, p)
	waitLink(t, q)
}

func waitLink(t *testing.T, n *node) {
	t.Helper()
	if st := must[*api.LinkStatus](t, "link")(n.c.WaitLink(t.Context(), "main", patience)); !st.Up {
		t.Fatalf("link of %s is down: %s", n.name, st.LastError)
	}
	eventually(t, "the owner knows its peer", func() bool {
		up := false
		_ = n.d.own.call(t.Context(), func() { up = len(n.d.peers) > 0 })
		return up
	})
}

func pair(t *testing.T, nodes ...*node) {
	t.Helper()
	p := api.Pair{Name: "main", Prefill: []api.PeerEngine{{Node: "p", Engine: "prefill"}}, Decode: []api.PeerEngine{{Node: "d", Engine: "decode"}}}
	for _, n := range nodes {
		must[*api.Pair](t, "pair")(n.c.PutPair(t.Context(), p))
	}
}

// fake is an engine: a scheduler and its workers.
type fake struct {
	t     *testing.T
	fp    kvcache.Fingerprint
	sched *enginesock.SchedulerClient
	work  []*enginesock.WorkerClient
	http  *httpEngine
	stop  func()
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
	h := enginesock.Hello{Engine: name, Generation: newID(), Session: enginesock.Scheduler, World: f.fp.TensorSize, Fingerprint: f.fp}
	path := filepath.Join(n.dir, EngineSocket)
	f.sched = enginesock.NewScheduler(enginesock.Identity{Path: path, Hello: h}, nil, nil)
	f.work = nil
	sched := f.sched
	wg.Go(func() { sched.Run(ctx) })
	for rank := range f.fp.TensorSize {
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

// find gives the row of a transfer.
func (n *node) find(id string) (api.Transfer, bool) {
	n.t.Helper()
	for _, x := range must[[]api.Transfer](n.t, "transfers")(n.c.Transfers(n.t.Context())) {
		if x.ID == id {
			return x, true
		}
	}
	return api.Transfer{}, false
}

func (n *node) waitState(id string, states ...string) api.Transfer {
	n.t.Helper()
	var x api.Transfer
	eventually(n.t, fmt.Sprintf("transfer %s of %s reaches %v", id, n.name, states), func() bool {
		var ok bool
		x, ok = n.find(id)
		return ok && strings.Contains(strings.Join(states, " "), x.State)
	})
	return x
}

// noPages checks that every page of the node is free again.
func (n *node) noPages() {
	n.t.Helper()
	eventually(n.t, "all pages of "+n.name+" are free", func() bool {
		text := string(must[[]byte](n.t, "metrics")(n.c.Metrics(n.t.Context())))
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "moai_arena_pages{") && !strings.Contains(line, `state="free"`) && !strings.HasSuffix(line, " 0\n") {
				return false
			}
		}
		return true
	})
}
