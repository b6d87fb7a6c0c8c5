package pdpair

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
)

func ref(node, name string, role engines.Role, model string) engineref.Ref {
	return refOf(node, name, role, engines.Spec{Model: engines.Model{ID: model}})
}

// refOf is an engine of a format.
func refOf(node, name string, role engines.Role, s engines.Spec) engineref.Ref {
	model := s.Model.ID
	k, err := engines.Lookup("reference")
	if err != nil {
		panic(err)
	}
	f, err := k.Fingerprint(k.Defaults(s))
	if err != nil {
		panic(err)
	}
	b, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	return engineref.Ref{
		Name: name, Kind: "reference", Role: role, Connector: engines.ConnectorMoai, Model: model, Fingerprint: string(b), Known: true,
		Node: noderef.Ref{Coordinates: fleet.Coordinates{Name: node}},
	}
}

func good() pools {
	return pools{
		prefill: []engineref.Ref{ref("h100-0", "p0", engines.RolePrefill, "moai/seeded"), ref("h100-1", "p1", engines.RoleBoth, "moai/seeded")},
		decode:  []engineref.Ref{ref("mi300x-0", "d0", engines.RoleDecode, "moai/seeded")},
		links: []link{
			{nodes: []string{"h100-0", "mi300x-0"}, known: true},
			{nodes: []string{"mi300x-0", "h100-1"}, known: true},
		},
		linksKnown: true, optionsKnown: true,
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	if fs := good().faults(); len(fs) > 0 {
		t.Fatalf("a good pool has faults: %+v", fs)
	}
	for _, c := range []struct {
		name, at, says string
		spoil          func(*pools)
	}{
		{"other head size", "prefill[1]", "groups", func(p *pools) {
			p.prefill[1] = ref("h100-1", "p1", engines.RolePrefill, "moai/seeded-wide")
		}},
		{"other model", "prefill[0]", "model", func(p *pools) { p.prefill[0] = ref("h100-0", "p0", engines.RolePrefill, "moai/reciting") }},
		{"prefill that decodes", "prefill[0]", `role = "decode"`, func(p *pools) { p.prefill[0].Role = engines.RoleDecode }},
		{"decode that prefills", "decode[0]", `role = "prefill"`, func(p *pools) { p.decode[0].Role = engines.RolePrefill }},
		{"no connector", "decode[0]", `kv_connector = "none"`, func(p *pools) { p.decode[0].Connector = engines.ConnectorNone }},
		{"twice", "prefill[1]", "more than once", func(p *pools) { p.prefill[1] = p.prefill[0] }},
		{"both sides", "prefill[0]", "in prefill and in decode", func(p *pools) {
			p.prefill[0].Role = engines.RoleBoth
			p.decode[0] = p.prefill[0]
			p.prefill = p.prefill[:1]
		}},
		{"no link", "links", "nodes = [h100-1, mi300x-0]", func(p *pools) { p.links = p.links[:1] }},
		{"same node", "links", "a node has one daemon", func(p *pools) { p.prefill[1].Node.Name = "mi300x-0" }},
		{"damaged fingerprint", "prefill[0]", "fingerprint version 0", func(p *pools) { p.prefill[0].Fingerprint = "{}" }},
	} {
		p := good()
		c.spoil(&p)
		fs := p.faults()
		if len(fs) != 1 || fs[0].path().String() != c.at || !strings.Contains(fs[0].detail, c.says) {
			t.Errorf("%s: got %+v, want one at %s that says %q", c.name, fs, c.at, c.says)
		}
	}
}

// What is not known yet is never refused.
func TestUnknownIsTolerated(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := good()
		for _, es := range [][]engineref.Ref{p.prefill, p.decode} {
			for i := range es {
				if rapid.Bool().Draw(t, "unknown engine") {
					es[i] = engineref.Ref{}
				}
			}
		}
		for i := range p.links {
			if rapid.Bool().Draw(t, "unknown link") {
				p.links[i] = link{}
			}
		}
		p.linksKnown, p.optionsKnown = rapid.Bool().Draw(t, "links known"), rapid.Bool().Draw(t, "options known")
		if fs := p.faults(); len(fs) > 0 {
			t.Fatalf("%+v", fs)
		}
	})
}

func TestNamesAndRegistration(t *testing.T) {
	t.Parallel()
	p := good()
	if got := p.defaultName(); got != "p0--d0" {
		t.Errorf("default name %q", got)
	}
	p.prefill[0].Name = strings.Repeat("p", 63)
	if got := p.defaultName(); !fleet.ValidName(got) {
		t.Errorf("default name %q is not valid", got)
	}
	p = good()
	if n := p.nodes(); len(n) != 3 {
		t.Errorf("%d nodes", len(n))
	}
	want := p.registration("main")
	other := p.registration("main")
	other.Decode[0].Engine = "d1"
	strict := p.registration("main")
	p.options.AllowLossy = true
	lossy := p.registration("main")
	for _, c := range []struct {
		got  *api.Pair
		want string
	}{{&want, stOK}, {&strict, stOK}, {&other, stChanged}, {&lossy, stChanged}, {nil, stMissing}} {
		if judge(c.got, want) != c.want {
			t.Errorf("%+v is judged %s, want %s", c.got, judge(c.got, want), c.want)
		}
	}
}
