package kvd

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
)

const patience = 10 * time.Second

func testFingerprint() kvcache.Fingerprint {
	return kvcache.Fingerprint{Version: kvcache.Version, Model: kvcache.Model{Config: "m", Weights: "m", Tokenizer: "m"}, Engine: kvcache.Engine{Family: "fake", Release: "1"},
		Storage: kvcache.Storage{DType: kvcache.BF16, Scales: kvcache.Scales{Kind: kvcache.ScaleNone}, Order: kvcache.OrderLBHNC, Packing: kvcache.PackingPacked, BlockSize: 16, KernelBlock: 16},
		Ranks:   kvcache.Ranks{Tensor: 2, Pipeline: 1},
		Groups:  []kvcache.Group{{Kind: kvcache.GroupFull, Heads: 8, KeyDim: 64, ValueDim: 64, Layers: []int{0, 2, 4}}, {Kind: kvcache.GroupSliding, Heads: 8, KeyDim: 64, ValueDim: 64, Window: 32, Layers: []int{1, 3, 5}}}}
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
	pairWith(t, kvcompat.Options{}, nodes...)
}

func pairWith(t *testing.T, o kvcompat.Options, nodes ...*node) {
	t.Helper()
	p := api.Pair{Name: "main", Options: o, Prefill: []api.PeerEngine{{Node: "p", Engine: "prefill"}}, Decode: []api.PeerEngine{{Node: "d", Engine: "decode"}}}
	for _, n := range nodes {
		must[*api.Pair](t, "pair")(n.c.PutPair(t.Context(), p))
	}
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
