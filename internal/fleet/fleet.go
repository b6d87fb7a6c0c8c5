package fleet

import (
	"context"
	"sync"

	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/moai-dev/terraform-provider-moai/internal/host"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

// Fleet is the shared state of one provider configuration. It is safe for concurrent use. Make it with [New].
type Fleet struct {
	settings Settings
	pool     *ssh.Pool

	mu         sync.Mutex
	registered map[string]Coordinates // by node name; what moai_node itself says
	nodes      map[string]*Node       // by node name and SSH coordinates
	hosts      map[*ssh.Conn]*host.Host
	leaving    map[string]bool          // machine-id and resource: planned to be removed from that machine
	planned    []Coordinates            // of the nodes that this run plans to make, with the machine-id that was found
	claims     []EngineClaim            // of the engines that this run plans
	gpus       map[string]int           // by node name: accelerators that its resource expects
	holds      map[string][]Hold        // by resource instance
	turns      map[string]chan struct{} // by what is taken turns at; holds one token while nobody has it
}

// New makes a fleet. It dials nothing. ctx is used for logging only, also after it has ended.
func New(ctx context.Context, s Settings) *Fleet {
	f := &Fleet{settings: s, registered: map[string]Coordinates{}, nodes: map[string]*Node{}, hosts: map[*ssh.Conn]*host.Host{},
		leaving: map[string]bool{}, gpus: map[string]int{}, holds: map[string][]Hold{}, turns: map[string]chan struct{}{}}
	logCtx := f.Context(context.WithoutCancel(ctx))
	var logging sync.Mutex // masking writes to the logger's own fields: two at once is a crash
	f.pool = ssh.NewPool(ssh.Options{Log: func(msg string, kv ...any) {
		fields := map[string]any{}
		for i := 0; i+1 < len(kv); i += 2 {
			if k, ok := kv[i].(string); ok {
				fields[k] = kv[i+1]
			}
		}
		logging.Lock()
		defer logging.Unlock()
		tflog.Debug(logCtx, msg, fields)
	}})
	return f
}

// Name is the ownership domain.
func (f *Fleet) Name() string { return f.settings.Fleet }

// Close ends all connections.
func (f *Fleet) Close() { f.pool.Close() }

// Context returns ctx with the fleet's secrets masked in all log output. Every method that a framework calls begins
// with it, because each call comes with a logger of its own.
func (f *Fleet) Context(ctx context.Context) context.Context {
	var texts []string
	for _, s := range f.settings.Secrets() {
		texts = append(texts, s.Reveal())
	}
	if len(texts) == 0 {
		return ctx
	}
	ctx = tflog.MaskAllFieldValuesStrings(ctx, texts...)
	return tflog.MaskMessageStrings(ctx, texts...)
}

// Register records where a node is, as its own resource says. From then on [Fleet.Node] answers with these
// coordinates, whatever other resources remember.
func (f *Fleet) Register(c Coordinates) *Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.registered[c.Name] = c
	return f.node(c)
}

// Node returns the node that c means: at its registered coordinates if it is registered, else at c itself. A
// registration of another machine (other machine-id) under the same name does not count.
func (f *Fleet) Node(c Coordinates) *Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, ok := f.registered[c.Name]; ok && (r.MachineID == "" || c.MachineID == "" || r.MachineID == c.MachineID) {
		if r.MachineID == "" {
			r.MachineID = c.MachineID
		}
		c = r
	}
	return f.node(c)
}

// At returns the node at exactly these coordinates, whatever is registered.
func (f *Fleet) At(c Coordinates) *Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.node(c)
}

// node returns the one Node for c's name and SSH coordinates, told the rest of c. The caller holds the lock.
func (f *Fleet) node(c Coordinates) *Node {
	key := nodeKey(c)
	n, ok := f.nodes[key]
	if !ok {
		n = &Node{fleet: f}
		f.nodes[key] = n
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.coords = c
	return n
}

// host returns the one Host for a connection: the host's lock is held per Host.
func (f *Fleet) host(c *ssh.Conn) *host.Host {
	f.mu.Lock()
	defer f.mu.Unlock()
	h, ok := f.hosts[c]
	if !ok {
		h = host.New(c, host.Options{})
		f.hosts[c] = h
	}
	return h
}
