package pdpair

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
)

// link names the nodes that a KV link joins.
type link struct {
	nodes []string
	known bool
}

// pools are a pair's engines and links, and what it allows. Engines that are not
// known yet have Known false.
type pools struct {
	prefill, decode []engineref.Ref
	links           []link
	linksKnown      bool
	options         kvcompat.Options
	optionsKnown    bool
}

// fault is something that keeps engines from being a pair. Index is into the
// attribute's list, or -1 for the whole of it.
type fault struct {
	attribute string
	index     int
	summary   string
	detail    string
}

// faults finds everything that is wrong with what is known.
func (p pools) faults() []fault {
	var out []fault
	out = append(out, p.unfit("prefill", p.prefill, engines.Role.Prefills)...)
	out = append(out, p.unfit("decode", p.decode, engines.Role.Decodes)...)
	for i, pe := range p.prefill {
		for j, de := range p.decode {
			if !pe.Known || !de.Known {
				continue
			}
			if pe.ID() == de.ID() {
				out = append(out, fault{"prefill", i, "Engine on both sides", fmt.Sprintf(
					"%s is in prefill and in decode. An engine that does both needs no transfer: use two engines, or one without a pair.", pe.ID())})
				continue
			}
			_, faults := p.verdict(i, j)
			out = append(out, faults...)
			out = append(out, p.unlinked(pe, de)...)
		}
	}
	return dedupe(out)
}

// unfit finds engines that cannot do what their list is for.
func (p pools) unfit(attribute string, es []engineref.Ref, fits func(engines.Role) bool) []fault {
	var out []fault
	seen := map[string]bool{}
	for i, e := range es {
		if !e.Known {
			continue
		}
		switch {
		case seen[e.ID()]:
			out = append(out, fault{attribute, i, "Engine is there twice", fmt.Sprintf("%s is in %s more than once.", e.ID(), attribute)})
		case e.Connector != engines.ConnectorMoai:
			out = append(out, fault{attribute, i, "Engine moves no KV", fmt.Sprintf(
				"%s has kv_connector = %q. Engines of a pair need kv_connector = %q.", e.ID(), e.Connector, engines.ConnectorMoai)})
		case !fits(e.Role):
			out = append(out, fault{attribute, i, "Engine has another role", fmt.Sprintf(
				"%s has role = %q, and is listed for %s. Set its role to %q or \"both\", or list it on the other side.", e.ID(), e.Role, attribute, attribute)})
		}
		seen[e.ID()] = true
	}
	return out
}

// unlinked says so when no link joins the nodes of two engines.
func (p pools) unlinked(a, b engineref.Ref) []fault {
	if !p.linksKnown {
		return nil
	}
	if a.Node.Name == b.Node.Name {
		return []fault{{"links", -1, "Engines share a node", fmt.Sprintf(
			"%s and %s run on the same node. KV crosses a link between the daemons of two nodes, and a node has one daemon, so that there is no link between them. Put one of them on another node.", a.ID(), b.ID())}}
	}
	for _, l := range p.links {
		if !l.known || slices.Contains(l.nodes, a.Node.Name) && slices.Contains(l.nodes, b.Node.Name) {
			return nil
		}
	}
	return []fault{{"links", -1, "No KV link between nodes", fmt.Sprintf(
		"%s (prefill) is on node %s and %s (decode) on node %s, and none of the links joins them. Add a moai_kv_link with nodes = [%s, %s] to links.",
		a.ID(), a.Node.Name, b.ID(), b.Node.Name, a.Node.Name, b.Node.Name)}}
}

func dedupe(fs []fault) []fault {
	var out []fault
	for _, f := range fs {
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// known reports whether every engine is.
func (p pools) known() bool {
	return !slices.ContainsFunc(p.all(), func(e engineref.Ref) bool { return !e.Known })
}

func (p pools) all() []engineref.Ref { return slices.Concat(p.prefill, p.decode) }

// nodes gives one engine of each node, in order of first mention.
func (p pools) nodes() []engineref.Ref {
	var out []engineref.Ref
	seen := map[string]bool{}
	for _, e := range p.all() {
		if !seen[e.Node.Name] {
			seen[e.Node.Name] = true
			out = append(out, e)
		}
	}
	return out
}

// registration is what the daemon of each node shall hold.
func (p pools) registration(name string) api.Pair {
	return api.Pair{Name: name, Prefill: peers(p.prefill), Decode: peers(p.decode), Options: p.options}
}

func peers(es []engineref.Ref) []api.PeerEngine {
	out := make([]api.PeerEngine, len(es))
	for i, e := range es {
		out[i] = api.PeerEngine{Node: e.Node.Name, Engine: e.Name}
	}
	return out
}

// Words for what a daemon holds of a pair.
const (
	stOK      = "ok"
	stChanged = "changed"
	stMissing = "missing"
	stSilent  = "unresponsive"
)

// judge compares what a daemon holds with what it shall hold; nil means that it
// said there is none.
func judge(got *api.Pair, want api.Pair) string {
	switch {
	case got == nil:
		return stMissing
	case got.Name != want.Name || !slices.Equal(got.Prefill, want.Prefill) || !slices.Equal(got.Decode, want.Decode) || got.Options != want.Options:
		return stChanged
	}
	return stOK
}

// defaultName is the name of a pair that was given none.
func (p pools) defaultName() string {
	if len(p.prefill) == 0 || len(p.decode) == 0 {
		return ""
	}
	name := p.prefill[0].Name + "--" + p.decode[0].Name
	return strings.TrimRight(name[:min(len(name), 63)], "-")
}

// model is the name under which the pair is served: that of the decode engines,
// which answer.
func (p pools) model() string {
	if len(p.decode) == 0 {
		return ""
	}
	return p.decode[0].Model
}
