package kvd

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/intake"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvd/store"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// Daemon is a KV daemon. Make it with New and Run it once.
type Daemon struct {
	cfg      Options
	log      *slog.Logger
	instance wire.ID
	started  time.Time
	identity transport.Identity
	store    *store.Store
	mux      *transport.Mux
	metrics  *metrics
	timeouts transfer.Timeouts
	lease    time.Duration
	own      *owner
	ctx      context.Context // of everything that the daemon started
	wg       sync.WaitGroup
	pins     atomic.Pointer[[]pin]
	announce atomic.Pointer[[]wire.Engine]
	forwards forwards
	stopping chan struct{} // closed when no new requests are taken
	bodies   *intake.Budget
	patience time.Duration // with clients that do not take their answer
	landings landings

	roomMu   sync.Mutex
	room     map[*replica]struct{}
	roomWake chan struct{}

	// The owner's.
	engines     map[string]*engine
	pairs       map[string]api.Pair
	links       map[string]api.Link // by peer node
	peers       map[string]*peerSession
	sessions    map[transfer.Session]*peerSession
	byTransport map[transport.Session]*peerSession
	sessionNum  transfer.Session
	sends       map[wire.ID]*sending
	recvs       map[wire.ID]*receiving
	order       []*receiving // live ones, oldest first
	early       map[wire.ID]early
	cancelled   map[wire.ID]tombstone
	compat      compatCache
	converters  converterCache
	deferred    []func()
	wantPacing  bool
	ready       map[string]bool // engines, as last logged
}

// tombstone is a cancellation that may be earlier than what it cancels.
type tombstone struct {
	detail string
	until  transfer.Instant
}

type pin struct {
	key ed25519.PublicKey
	t   api.Trust
}

// New prepares a daemon: it loads or makes the node's key and reads the state.
func New(o Options) (*Daemon, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	id, err := transport.LoadOrCreate(keyPath(o.StateDir))
	if err != nil {
		return nil, err
	}
	st, err := store.Open(statePath(o.StateDir))
	if err != nil {
		return nil, err
	}
	if o.Timeouts == (transfer.Timeouts{}) {
		o.Timeouts = transfer.DefaultTimeouts()
	}
	d := &Daemon{
		cfg: o, log: o.Log, identity: id, store: st, started: time.Now(), timeouts: o.Timeouts,
		lease: time.Duration(cmp.Or(o.LeaseMillis, 10_000)) * time.Millisecond,
		own:   newOwner(), room: map[*replica]struct{}{}, roomWake: make(chan struct{}, 1),
		engines: map[string]*engine{}, pairs: map[string]api.Pair{}, links: map[string]api.Link{},
		peers: map[string]*peerSession{}, sessions: map[transfer.Session]*peerSession{}, byTransport: map[transport.Session]*peerSession{},
		sends: map[wire.ID]*sending{}, recvs: map[wire.ID]*receiving{}, early: map[wire.ID]early{}, cancelled: map[wire.ID]tombstone{},
		stopping: make(chan struct{}), ready: map[string]bool{}, bodies: intake.NewBudget(maxBodies), patience: clientPatience,
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	_, _ = rand.Read(d.instance[:]) // never fails
	d.landings.m = map[wire.ID]*landing{}
	d.forwards.m = map[string]map[*forward]struct{}{}
	d.metrics = newMetrics(d)
	d.mux = transport.New(transport.Options{
		Node: o.Node, Instance: d.instance, Identity: id, Pins: d, Log: d.log, Handler: d,
		HTTP: d.gatewayHandler(), Engines: d.announced, Timing: o.Timing,
	})
	s := st.Get()
	d.setPins(s)
	for _, name := range slices.Sorted(maps.Keys(s.Engines)) {
		if _, err := checkEngine(s.Engines[name]); err != nil {
			return nil, fmt.Errorf("the daemon's state %s is damaged: engine %s: %w; remove it and apply again", statePath(o.StateDir), name, err)
		}
		d.engines[name] = newEngine(s.Engines[name])
		d.engines[name].draining = s.Draining[name]
	}
	d.pairs = s.Pairs
	for _, l := range s.Links {
		d.links[l.Peer] = l
	}
	d.changed()
	return d, nil
}

func keyPath(dir string) string   { return dir + "/node.key" }
func statePath(dir string) string { return dir + "/state.json" }

// background runs f until it ends; Run waits for it.
func (d *Daemon) background(f func()) { d.wg.Go(f) }

// later runs f on the owner when the present event has been handled.
func (d *Daemon) later(f func()) { d.deferred = append(d.deferred, f) }

// settle runs after each event: what was deferred, then pacing.
func (d *Daemon) settle() {
	for len(d.deferred) > 0 || d.wantPacing {
		if len(d.deferred) > 0 {
			f := d.deferred[0]
			d.deferred = d.deferred[1:]
			f()
			continue
		}
		d.wantPacing = false
		d.pace()
	}
}

// tick passes time on: deadlines of transfers, leases of engines, and what is
// only remembered.
func (d *Daemon) tick() {
	now := d.own.now()
	d.eachSend(func(t *sending) {
		if now >= t.m.Deadline() {
			_ = d.stepSend(t, transfer.Tick{})
		}
		if t.m.Done(now) {
			delete(d.sends, t.id)
			t.replica.engine.sends--
		}
	})
	d.eachRecv(func(t *receiving) {
		if now >= t.m.Deadline() {
			_ = d.stepRecv(t, transfer.Tick{})
		}
		if t.m.Done(now) && t.land.idle() { // a chunk that is being written finds its landing by this id
			delete(d.recvs, t.id)
			t.replica.engine.recvs--
		}
	})
	d.order = slices.DeleteFunc(d.order, func(t *receiving) bool { return t.m.State().Terminal() })
	for id, c := range d.early {
		if now >= c.until || !c.ps.up {
			delete(d.early, id)
		}
	}
	for id, c := range d.cancelled {
		if now >= c.until {
			delete(d.cancelled, id)
		}
	}
	for _, e := range d.engines {
		for _, r := range e.replicas {
			if r.missing != 0 && now.Sub(r.missing) >= d.lease {
				r.missing = 0 // once: what comes later has deadlines of its own
				d.endReplica(r, false, "the engine's sessions were gone for a lease")
			}
		}
	}
	d.wantPacing = true
}

// endEngine ends all transfers of an engine.
func (d *Daemon) endEngine(e *engine, why string) {
	for _, r := range e.replicas {
		d.endReplica(r, false, why)
	}
}

// endReplica ends all transfers of a replica. fenced: its processes are dead.
func (d *Daemon) endReplica(r *replica, fenced bool, why string) {
	ev := transfer.EngineGone{Fenced: fenced, Detail: why}
	d.eachSend(func(t *sending) {
		if t.replica == r {
			_ = d.stepSend(t, ev)
		}
	})
	d.eachRecv(func(t *receiving) {
		if t.replica == r {
			_ = d.stepRecv(t, ev)
		}
	})
}

// eachSend visits senders in a fixed order, so that runs are comparable.
func (d *Daemon) eachSend(f func(*sending)) {
	for _, t := range slices.SortedFunc(maps.Values(d.sends), func(a, b *sending) int { return cmp.Compare(a.began, b.began) }) {
		f(t)
	}
}

func (d *Daemon) eachRecv(f func(*receiving)) {
	for _, t := range slices.SortedFunc(maps.Values(d.recvs), func(a, b *receiving) int { return cmp.Compare(a.began, b.began) }) {
		f(t)
	}
}

// changed publishes what peers and operators should know of the engines.
func (d *Daemon) changed() {
	list := d.announcement()
	if old := d.announce.Swap(&list); old == nil || !slices.Equal(*old, list) {
		for _, ps := range d.peers {
			if err := ps.s.Send(&wire.Engines{Engines: list}); err != nil {
				d.log.Debug("announce engines", "peer", ps.node, "error", err)
			}
		}
	}
	for name, e := range d.engines {
		why := e.notReady()
		if r := why == ""; r != d.ready[name] {
			d.ready[name] = r
			d.log.Info("engine readiness changed", "engine", name, "ready", r, "reason", why)
		}
	}
}

func (d *Daemon) announcement() []wire.Engine {
	var out []wire.Engine
	for _, name := range slices.Sorted(maps.Keys(d.engines)) {
		e := d.engines[name]
		b, err := json.Marshal(e.reg.Fingerprint)
		if err != nil { // a struct of strings and integers always encodes
			continue
		}
		g := wire.Engine{Name: name, Generation: e.generation(), Ranks: uint16(e.ranks()), FingerprintJSON: string(b)}
		if h, err := hex.DecodeString(e.format.hash); err == nil {
			copy(g.FingerprintHash[:], h)
		}
		out = append(out, g)
	}
	return out
}

func (d *Daemon) announced() []wire.Engine { return *d.announce.Load() }

// paired reports whether a pair allows KV from one engine to the other.
func (d *Daemon) paired(pNode, pEngine, dNode, dEngine string) bool {
	for _, p := range d.pairs {
		if contains(p.Prefill, api.PeerEngine{Node: pNode, Engine: pEngine}) && contains(p.Decode, api.PeerEngine{Node: dNode, Engine: dEngine}) {
			return true
		}
	}
	return false
}

func contains(list []api.PeerEngine, e api.PeerEngine) bool { return slices.Contains(list, e) }

func sortedPairs(m map[string]api.Pair) []api.Pair {
	return slices.SortedFunc(maps.Values(m), func(a, b api.Pair) int { return cmp.Compare(a.Name, b.Name) })
}

func (d *Daemon) linked(node string) bool {
	_, ok := d.links[node]
	return ok
}

func (d *Daemon) streams(node string) int { return min(max(d.links[node].Streams, 1), wire.MaxStreams) }

// Allowed is called by the transport at every handshake.
func (d *Daemon) Allowed(pub ed25519.PublicKey, role api.Role) (name, node string, ok bool) {
	for _, p := range *d.pins.Load() {
		if p.t.Role == role && p.key.Equal(pub) {
			return p.t.Name, p.t.Node, true
		}
	}
	return "", "", false
}

func (d *Daemon) setPins(s store.State) {
	var pins []pin
	for _, name := range slices.Sorted(maps.Keys(s.Trust)) {
		t := s.Trust[name]
		key, err := transport.ParseKey(t.PublicKey)
		if err != nil {
			d.log.Error("a trusted key in the state cannot be read", "trust", name, "error", err)
			continue
		}
		pins = append(pins, pin{key, t})
	}
	d.pins.Store(&pins)
}

// cancel ends everything with an id, here and, through ABORT, on the peer.
func (d *Daemon) cancel(id wire.ID, detail string) {
	if len(d.cancelled) < maxEarly {
		d.cancelled[id] = tombstone{detail, d.own.now().Add(d.timeouts.Claim)}
	}
	if c, ok := d.early[id]; ok {
		delete(d.early, id)
		d.abortTo(c.ps, id, transfer.CodeCancelled, detail)
	}
	if t := d.sends[id]; t != nil {
		_ = d.stepSend(t, transfer.Cancel{Code: transfer.CodeCancelled, Detail: detail})
	}
	if t := d.recvs[id]; t != nil {
		_ = d.stepRecv(t, transfer.Cancel{Code: transfer.CodeCancelled, Detail: detail})
	}
}

var _ transport.Handler = (*Daemon)(nil)
var _ transport.Pins = (*Daemon)(nil)
