// Package rig brings up two KV daemons in this process, linked over loopback, and
// reference engines of any format and size at them, for tests that need real ones.
package rig

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvd"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
)

// Node is one host's daemon.
type Node struct {
	Name   string
	Dir    string // short, since socket paths are
	Manage *client.Client

	t         testing.TB
	opts      kvd.Options
	onFailure string
	log       *slog.Logger
	stop      context.CancelFunc
	stopped   chan struct{}
	addr      string
}

// Pair is two linked nodes.
type Pair struct {
	A, B *Node
}

// Options of a pair.
type Options struct {
	Timeouts    transfer.Timeouts // zero: the protocol's
	LeaseMillis int64             // of sessions; 0: the protocol's
	Encryption  api.Encryption    // "" means aead
	OnFailure   string            // on_transfer_failure of the engines; "" means recompute
	Log         *slog.Logger
	Pair        kvcompat.Options // what the pair allows
}

// wait bounds how long anything may take to come up.
const wait = 30 * time.Second

// New starts two daemons and links them. The test's end stops them.
func New(t testing.TB, o Options) *Pair {
	t.Helper()
	if o.Encryption == "" {
		o.Encryption = api.EncryptionAEAD
	}
	p := &Pair{A: newNode(t, "node-a", o), B: newNode(t, "node-b", o)}
	p.A.Start()
	p.B.Start()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	p.link(ctx, t, o)
	return p
}

func (p *Pair) link(ctx context.Context, t testing.TB, o Options) {
	t.Helper()
	for _, n := range []struct {
		self, peer *Node
		dial       bool
	}{{p.A, p.B, true}, {p.B, p.A, false}} {
		st, err := n.peer.Manage.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.self.Manage.PutTrust(ctx, api.Trust{Name: "peer", PublicKey: st.PublicKey, Role: api.RolePeer, Node: n.peer.Name}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.self.Manage.PutLink(ctx, api.Link{Name: "link", Peer: n.peer.Name, PeerKey: st.PublicKey, Addresses: []string{n.peer.addr},
			Dial: n.dial, Transport: "tcp", Encryption: o.Encryption, Streams: 2}); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []*Node{p.A, p.B} {
		if l, err := n.Manage.WaitLink(ctx, "link", wait); err != nil || !l.Up {
			t.Fatalf("link of %s is not up: %+v, %v", n.Name, l, err)
		}
	}
}

// Register registers a prefill engine on A and a decode engine on B as they are
// configured, and pairs them as the options allow.
func (p *Pair) Register(t testing.TB, o Options, prefill, decode refengine.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	for _, e := range []struct {
		node *Node
		role string
		cfg  refengine.Config
	}{{p.A, "prefill", prefill}, {p.B, "decode", decode}} {
		fp, err := e.cfg.Fingerprint()
		if err != nil {
			t.Fatal(err)
		}
		e.node.put(ctx, t, api.Engine{Name: e.cfg.Name, EngineRole: e.role, Fingerprint: fp, DataSize: e.cfg.DataParallel, StagingBytes: Staging})
	}
	p.pair(ctx, t, api.Pair{Name: "pair-" + prefill.Name + "-" + decode.Name, Options: o.Pair,
		Prefill: []api.PeerEngine{{Node: p.A.Name, Engine: prefill.Name}}, Decode: []api.PeerEngine{{Node: p.B.Name, Engine: decode.Name}}})
}

func (p *Pair) pair(ctx context.Context, t testing.TB, pair api.Pair) {
	t.Helper()
	for _, n := range []*Node{p.A, p.B} {
		if _, err := n.Manage.PutPair(ctx, pair); err != nil {
			t.Fatal(err)
		}
	}
}

// Engines registers a prefill engine on A and a decode engine on B, and pairs them.
func (p *Pair) Engines(t testing.TB, prefill, decode string, pfp, dfp kvcache.Fingerprint, staging int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	p.A.Engine(ctx, t, prefill, "prefill", pfp, staging)
	p.B.Engine(ctx, t, decode, "decode", dfp, staging)
	p.pair(ctx, t, api.Pair{Name: "pair-" + prefill + "-" + decode, Prefill: []api.PeerEngine{{Node: p.A.Name, Engine: prefill}}, Decode: []api.PeerEngine{{Node: p.B.Name, Engine: decode}}})
}

// Engine registers an engine whose processes are this test's.
func (n *Node) Engine(ctx context.Context, t testing.TB, name, role string, fp kvcache.Fingerprint, staging int64) {
	t.Helper()
	n.put(ctx, t, api.Engine{Name: name, EngineRole: role, Fingerprint: fp, StagingBytes: staging})
}

// put registers an engine, with what is the same for all engines of the rig.
func (n *Node) put(ctx context.Context, t testing.TB, e api.Engine) {
	t.Helper()
	e.UID, e.HTTPSocket, e.OnTransferFailure = os.Getuid(), n.HTTPSocket(e.Name), cmp.Or(n.onFailure, "recompute")
	if _, err := n.Manage.PutEngine(ctx, e); err != nil {
		t.Fatal(err)
	}
}

// HTTPSocket is where an engine of the node should serve.
func (n *Node) HTTPSocket(engine string) string { return filepath.Join(n.Dir, engine+".http") }

// EngineSocket is the daemon's.
func (n *Node) EngineSocket() string { return filepath.Join(n.Dir, kvd.EngineSocket) }

func newNode(t testing.TB, name string, o Options) *Node {
	t.Helper()
	dir, err := os.MkdirTemp("", "moai-rig-")
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{Name: name, Dir: dir, t: t, log: o.Log, onFailure: o.OnFailure}
	n.opts = kvd.Options{
		Config:   kvd.Config{Node: name, Listen: []string{"127.0.0.1:0"}, StateDir: dir, RunDir: dir},
		Timeouts: o.Timeouts, LeaseMillis: o.LeaseMillis, Log: o.Log,
	}
	sock := filepath.Join(dir, kvd.ManageSocket)
	n.Manage = client.New(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", sock)
	})
	t.Cleanup(func() {
		n.Manage.Close()
		n.Stop()
		_ = os.RemoveAll(dir)
	})
	return n
}

// Start runs the daemon; it returns when it listens. A second start uses the
// address of the first, so that links stay.
func (n *Node) Start() {
	n.t.Helper()
	d, err := kvd.New(n.opts)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	up := make(chan string, 1)
	n.stop, n.stopped = cancel, make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		defer close(n.stopped)
		failed <- d.Run(ctx, func(addrs []net.Addr) { up <- addrs[0].String() })
	}()
	select {
	case n.addr = <-up:
		n.opts.Listen = []string{n.addr}
	case err := <-failed:
		n.t.Fatalf("daemon of %s: %v", n.Name, err)
	case <-time.After(wait):
		n.t.Fatalf("daemon of %s does not listen", n.Name)
	}
}

// Stop ends the daemon and waits for it.
func (n *Node) Stop() {
	if n.stop == nil {
		return
	}
	n.stop()
	<-n.stopped
	n.stop = nil
}

// Eventually waits until cond is nil, and fails the test with what it says
// otherwise.
func Eventually(t testing.TB, within time.Duration, cond func() error) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); ; <-tick.C {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %v", within, err)
		}
	}
}

// Group runs functions until a test's end.
type Group struct {
	wg     sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
}

// NewGroup makes a group whose functions end with the test.
func NewGroup(t testing.TB) *Group {
	ctx, cancel := context.WithCancel(context.Background())
	g := &Group{ctx: ctx, cancel: cancel}
	t.Cleanup(g.Stop)
	return g
}

// Go runs f.
func (g *Group) Go(f func(ctx context.Context)) { g.wg.Go(func() { f(g.ctx) }) }

// Stop ends all functions and waits for them.
func (g *Group) Stop() {
	g.cancel()
	g.wg.Wait()
}

// ID makes a transfer id or generation of a number.
func ID(n int) string { return fmt.Sprintf("%032x", n) }

// WaitLink waits until the node's link is up.
func (n *Node) WaitLink(t testing.TB) {
	t.Helper()
	Eventually(t, wait, func() error {
		l, err := n.Manage.GetLink(context.Background(), "link")
		if err != nil {
			return err
		}
		if !l.Up {
			return fmt.Errorf("link of %s is down: %s", n.Name, l.LastError)
		}
		return nil
	})
}
