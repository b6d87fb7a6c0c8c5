package acctest

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh/sshtest"
)

const (
	kvdUnit = "moai-kvd.service"
	keyFile = "/var/lib/moai/kvd/node.key"
)

// network is where daemons find each other.
type network struct {
	mu      sync.Mutex
	daemons map[string]*Daemon // by node name
}

func newNetwork() *network { return &network{daemons: map[string]*Daemon{}} }

func (n *network) find(node string) *Daemon {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.daemons[node]
}

// Daemon stands in for moaid kvd, held to the same conformance suite: it lives and dies with its unit, keeps its key in the machine's files, and remembers
// what it was told over restarts. A link is up when both ends trust each other and agree.
type Daemon struct {
	net     *network
	machine *sshtest.Machine
	mux     *http.ServeMux

	mu      sync.Mutex
	running bool
	node    string
	binary  string
	listen  []string
	failing error // what the next starts fail with
	mute    bool  // starts, but answers nobody
	broken  string

	instance string // of the run of the daemon

	trust   map[string]api.Trust
	links   map[string]api.Link
	engines map[string]api.Engine
	drained map[string]bool
	pairs   map[string]api.Pair
	writes  []string
	probes  int

	// EngineHTTP answers requests that are forwarded to engines; nil answers 502.
	EngineHTTP http.Handler
	// TransferList is what the daemon knows of transfers; nil means none.
	TransferList func() []api.Transfer
	// EngineReady decides whether an engine counts as ready; nil means always.
	EngineReady func(e api.Engine) (ready bool, reason string)
	// EngineRefused gives the code with which sessions of an engine that is not ready are refused; nil means none is.
	EngineRefused func(e api.Engine) string
}

func newDaemon(n *network, m *sshtest.Machine) *Daemon {
	d := &Daemon{net: n, machine: m}
	d.mux = d.routes()
	d.wipe()
	return d
}

// wipe forgets everything, as a reinstalled machine does.
func (d *Daemon) wipe() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.setRunning(false)
	d.trust, d.links, d.engines = map[string]api.Trust{}, map[string]api.Link{}, map[string]api.Engine{}
	d.pairs, d.drained = map[string]api.Pair{}, map[string]bool{}
}

// setRunning makes the machine's socket answer or not. The machine orders changes of its units before later dials.
func (d *Daemon) setRunning(yes bool) {
	d.running, d.machine.Management = yes, nil
	if yes {
		d.machine.Management = d
	}
}

// FailStart makes starts of the unit fail from now on; nil makes them succeed again.
func (d *Daemon) FailStart(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing = err
}

// Mute makes the daemon start, from the next start on, without ever answering.
func (d *Daemon) Mute(yes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mute = yes
}

// BreakLinks makes links stay down for a reason; "" mends them.
func (d *Daemon) BreakLinks(reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = reason
}

// Forget drops an object behind the provider's back: kind is trust, links, engines or pairs.
func (d *Daemon) Forget(kind, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(kind, name)
}

func (d *Daemon) remove(kind, name string) {
	switch kind {
	case "trust":
		delete(d.trust, name)
	case "links":
		delete(d.links, name)
	case "engines":
		delete(d.engines, name)
		delete(d.drained, name)
	case "pairs":
		delete(d.pairs, name)
	}
}

// Draining reports whether an engine was told to take no new requests.
func (d *Daemon) Draining(engine string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.drained[engine]
}

// SetDraining drains an engine, or not, behind the provider's back.
func (d *Daemon) SetDraining(engine string, yes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drained[engine] = yes
}

// Link returns a link as it was put.
func (d *Daemon) Link(name string) (api.Link, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, ok := d.links[name]
	return l, ok
}

// Pair returns a pair as it was put.
func (d *Daemon) Pair(name string) (api.Pair, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, ok := d.pairs[name]
	return p, ok
}

// Engine returns an engine as it was put.
func (d *Daemon) Engine(name string) (api.Engine, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.engines[name]
	return e, ok
}

// Trusts returns a trust entry.
func (d *Daemon) Trusts(name string) (api.Trust, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.trust[name]
	return t, ok
}

// SetLink changes a link behind the provider's back.
func (d *Daemon) SetLink(l api.Link) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.links[l.Name] = l
}

// Writes are the requests so far that change something, as "PUT /v1/…".
func (d *Daemon) Writes() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.writes...)
}

// ListensOn is an error unless the daemon that runs was started to listen on addr.
func (d *Daemon) ListensOn(addr string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.running || !slices.Contains(d.listen, addr) {
		return fmt.Errorf("daemon runs: %v, listens on %v, not on %s", d.running, d.listen, addr)
	}
	return nil
}

// Probes is the number of probe transfers so far.
func (d *Daemon) Probes() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.probes
}

// unit is called by the machine when a unit starts or stops.
func (d *Daemon) unit(event, unit string) error {
	if unit != kvdUnit {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if event == "stop" {
		d.setRunning(false)
		return nil
	}
	if d.failing != nil {
		return d.failing
	}
	config, ok := d.machine.File("/etc/moai/kvd.json")
	binary, ok2 := d.machine.File("/opt/moai/bin/moaid")
	if !ok || !ok2 {
		return errors.New("kvd.json or moaid is missing")
	}
	var c struct {
		Node   string   `json:"node"`
		Listen []string `json:"listen"`
	}
	if err := json.Unmarshal(config.Content, &c); err != nil {
		return err
	}
	if _, ok := d.machine.File(keyFile); !ok {
		d.machine.SetFile(keyFile, sshtest.Entry{Content: newSeed(), Mode: 0o600, Owner: "moai", Group: "moai"})
	}
	sum := sha256.Sum256(binary.Content)
	d.node, d.listen, d.binary = c.Node, c.Listen, hex.EncodeToString(sum[:])
	d.instance = hex.EncodeToString(newSeed()[:16])
	d.setRunning(!d.mute)
	d.net.mu.Lock()
	d.net.daemons[c.Node] = d
	d.net.mu.Unlock()
	return nil
}

// PublicKey is the daemon's public key, from the key that is on the machine.
func (d *Daemon) PublicKey() string {
	e, ok := d.machine.File(keyFile)
	if !ok {
		return ""
	}
	return publicOf(e.Content)
}

// newSeed makes the private half of a key.
func newSeed() []byte {
	seed := make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(seed) // never fails
	return seed
}

// publicOf is the public half as text, "" for what is no seed.
func publicOf(seed []byte) string {
	if len(seed) != ed25519.SeedSize {
		return ""
	}
	pub, _ := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	return "ed25519:" + base64.StdEncoding.EncodeToString(pub)
}

// linkStatus tells whether a link is up. It takes no lock but the other end's.
func (d *Daemon) linkStatus(l api.Link) api.LinkStatus {
	s := api.LinkStatus{Link: l}
	d.mu.Lock()
	broken := d.broken
	d.mu.Unlock()
	peer := d.net.find(l.Peer)
	switch {
	case broken != "":
		s.LastError = broken
	case peer == nil:
		s.LastError = "nobody answers at the peer's addresses"
	default:
		s.LastError = peer.accepts(d, l)
	}
	s.Up = s.LastError == ""
	return s
}

// accepts is what the peer says to a link: "" when all is well.
func (d *Daemon) accepts(from *Daemon, l api.Link) string {
	key := from.PublicKey()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.running || d.broken != "" {
		return "connection refused"
	}
	trusted := false
	for _, t := range d.trust {
		trusted = trusted || t.PublicKey == key && t.Role == api.RolePeer
	}
	if !trusted {
		return "the peer does not trust our key"
	}
	for _, other := range d.links {
		if other.PeerKey == key {
			switch {
			case other.Encryption != l.Encryption:
				return "the peer wants encryption " + string(other.Encryption)
			case other.Dial == l.Dial:
				return "both ends dial, or neither"
			}
			return ""
		}
	}
	return "the peer has no link to this node"
}
