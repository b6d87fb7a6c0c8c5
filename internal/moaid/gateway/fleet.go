package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/config"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/route"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/upstream"
)

// pollTimeout bounds one poll of a daemon.
const pollTimeout = 2 * time.Second

// fleet is every engine of the configuration and what is known of it.
type fleet struct {
	nodes  map[string]*upstream.Node
	models []string                // in the order of the configuration
	pools  map[string][]route.Pool // by model

	mu      sync.Mutex // guards what the engines hold, and changed
	engines map[route.Target]*route.Engine
	changed chan struct{} // closed and replaced when a state changes
}

func newFleet(c *config.RouterConfig, cert tls.Certificate) (*fleet, error) {
	f := &fleet{
		nodes: map[string]*upstream.Node{}, pools: map[string][]route.Pool{},
		engines: map[route.Target]*route.Engine{}, changed: make(chan struct{}),
	}
	t := c.Timeouts.WithDefaults()
	engines := func(es []config.Engine) ([]*route.Engine, error) {
		var out []*route.Engine
		for _, e := range es {
			if f.nodes[e.Node] == nil {
				n, err := upstream.NewNode(upstream.NodeConfig{
					Node: e.Node, Addresses: e.Addresses, PublicKey: e.PublicKey,
					DialTimeout: time.Duration(t.Dial), Certificate: cert,
				})
				if err != nil {
					return nil, err
				}
				f.nodes[e.Node] = n
			}
			target := route.Target{Node: e.Node, Engine: e.Engine}
			if f.engines[target] == nil {
				f.engines[target] = &route.Engine{Target: target}
			}
			out = append(out, f.engines[target])
		}
		return out, nil
	}
	for _, p := range c.Pairs {
		prefill, err := engines(p.Prefill)
		if err != nil {
			return nil, err
		}
		decode, err := engines(p.Decode)
		if err != nil {
			return nil, err
		}
		if f.pools[p.Model] == nil {
			f.models = append(f.models, p.Model)
		}
		f.pools[p.Model] = append(f.pools[p.Model], route.Pool{Name: p.Name, Prefill: prefill, Decode: decode})
	}
	return f, nil
}

// lease is a request's place at an engine.
type lease struct {
	f *fleet
	e *route.Engine
}

func (l *lease) String() string           { return l.e.String() }
func (l *lease) node() *upstream.Node     { return l.f.nodes[l.e.Node] }
func (l *lease) end(result route.Outcome) { l.f.end(l.e, result) }

// answered says that the engine's answer has begun well.
func (l *lease) answered() {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	l.e.Answered()
}

// choose picks engines and counts the request there.
func (f *fleet) choose(pools []route.Pool, split bool, tried route.Tried) (prefill, decode *lease, pool int, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := route.Choose(time.Now(), pools, split, tried)
	if c.Decode == nil {
		return nil, nil, -1, c.Reason
	}
	if c.Prefill != nil {
		c.Prefill.Begin()
		prefill = &lease{f, c.Prefill}
	}
	c.Decode.Begin()
	return prefill, &lease{f, c.Decode}, c.Pool, c.Reason
}

// another picks a further decode engine, nil if there is none.
func (f *fleet) another(pools []route.Pool, pool int, prefill *lease, tried route.Tried) (decode *lease, same bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var from *route.Engine
	if prefill != nil {
		from = prefill.e
	}
	e, same := route.ChooseDecode(time.Now(), pools, pool, from, tried)
	if e == nil {
		return nil, false
	}
	e.Begin()
	return &lease{f, e}, same
}

func (f *fleet) end(e *route.Engine, o route.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.End(time.Now(), o)
}

// report sets the state of all engines of a node by what state says.
func (f *fleet) report(node string, state func(e *route.Engine) (route.State, string, int)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed, now := false, time.Now()
	for _, e := range f.engines {
		if e.Node != node {
			continue
		}
		was, _ := e.State()
		s, reason, waiting := state(e)
		e.Report(s, reason, waiting)
		if s == route.Ready {
			e.Seen(now)
		}
		changed = changed || s != was
	}
	if changed {
		close(f.changed)
		f.changed = make(chan struct{})
	}
}

// down takes a node out of use until a poll reaches it again.
func (f *fleet) down(node string, err error) {
	f.report(node, func(*route.Engine) (route.State, string, int) { return route.Down, err.Error(), 0 })
}

// lost takes a node out of use if the error of a request shows that it is down.
func (f *fleet) lost(node string, err error) {
	if err != nil && upstream.Down(err) {
		f.down(node, err)
	}
}

// watch gives a channel that is closed at the next change of a state.
func (f *fleet) watch() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// poll asks a node's daemon once.
func (f *fleet) poll(ctx context.Context, n *upstream.Node) error {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	list, err := n.Engines(ctx)
	if err != nil {
		f.down(n.Name, err)
		return err
	}
	by := make(map[string]api.EngineSummary, len(list))
	for _, e := range list {
		by[e.Name] = e
	}
	f.report(n.Name, func(e *route.Engine) (route.State, string, int) {
		s, ok := by[e.Engine]
		e.Peers(s.Peers)
		e.Ending(s.Stopping)
		waiting := 0
		if s.Stats != nil {
			waiting = s.Stats.Waiting
		}
		switch {
		case !ok:
			return route.Absent, "the daemon of the node knows no such engine", 0
		case s.Draining:
			return route.Draining, "the engine is being drained", waiting
		case !s.Ready:
			return route.NotReady, s.Reason, waiting
		}
		return route.Ready, "", waiting
	})
	return nil
}

// keepPolling polls all nodes until ctx ends, and returns when all polls have
// ended. first is called once all nodes were asked once.
func (f *fleet) keepPolling(ctx context.Context, every time.Duration, failed func(node string, err error), first func()) {
	var all, once sync.WaitGroup
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		n := f.nodes[name]
		once.Add(1)
		all.Go(func() {
			asked := sync.OnceFunc(once.Done)
			defer asked()
			wasOK := true
			for {
				err := f.poll(ctx, n)
				asked()
				if ctx.Err() != nil {
					return
				}
				if err != nil && wasOK {
					failed(n.Name, err)
				}
				wasOK = err == nil
				// Jitter keeps routers from asking in step.
				jittered := time.Duration(float64(every) * (0.9 + 0.2*rand.Float64())) //nolint:gosec // no secret
				select {
				case <-time.After(jittered):
				case <-ctx.Done():
					return
				}
			}
		})
	}
	once.Wait()
	first()
	all.Wait()
}

// summary is one line for systemctl status.
func (f *fleet) summary() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lines []string
	for _, m := range f.models {
		var prefill, decode []*route.Engine
		for _, p := range f.pools[m] {
			prefill, decode = append(prefill, p.Prefill...), append(decode, p.Decode...)
		}
		lines = append(lines, fmt.Sprintf("%s: prefill %s, decode %s ready", m, ready(prefill), ready(decode)))
	}
	return strings.Join(lines, "; ")
}

func ready(es []*route.Engine) string {
	n := 0
	for _, e := range es {
		if s, _ := e.State(); s == route.Ready {
			n++
		}
	}
	return fmt.Sprintf("%d/%d", n, len(es))
}

func (f *fleet) close() {
	for _, n := range f.nodes {
		n.Close()
	}
}
