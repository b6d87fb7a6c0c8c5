package kvlink

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
)

func ref(name, key string) noderef.Ref {
	return noderef.Ref{Coordinates: fleet.Coordinates{Name: name, Host: name + ".example"}, PublicKey: key}
}

// Exactly one end dials, whatever the order in which the nodes are given, and each end holds the other.
func TestEndsFitTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringMatching(`ed25519:[A-Za-z0-9+/]{43}=`)
		a, b := ref("a", key.Draw(t, "a")), ref("b", key.Draw(t, "b"))
		if a.PublicKey == b.PublicKey {
			t.Skip("the same key")
		}
		s := spec{name: "x", nodes: [2]noderef.Ref{a, b}, encryption: api.EncryptionAEAD, streams: 4}
		turned := s
		turned.nodes = [2]noderef.Ref{b, a}
		e, f := s.ends(), turned.ends()
		if e[0].link.Dial == e[1].link.Dial {
			t.Fatal("both ends dial, or neither")
		}
		for i := range e {
			peer := e[1-i].node
			if e[i].link.Peer != peer.Name || e[i].link.PeerKey != peer.PublicKey || e[i].trust.PublicKey != peer.PublicKey || e[i].trust.Node != peer.Name {
				t.Fatalf("end %d does not hold the other: %+v", i, e[i])
			}
			if !sameLink(e[i].link, f[1-i].link) || e[i].trust != f[1-i].trust {
				t.Fatal("the order of the nodes matters")
			}
			if got := e[i].judge(&e[i].trust, &e[i].link); got != stOK {
				t.Fatalf("judge() of what shall be = %s", got)
			}
		}
	})
}

func TestJudgeEnd(t *testing.T) {
	e := spec{name: "x", nodes: [2]noderef.Ref{ref("a", "1"), ref("b", "2")}, encryption: api.EncryptionAEAD, streams: 4}.ends()[0]
	for name, change := range map[string]func(*api.Trust, *api.Link){
		"key":        func(t *api.Trust, _ *api.Link) { t.PublicKey = "3" },
		"role":       func(t *api.Trust, _ *api.Link) { t.Role = api.RoleGateway },
		"peer":       func(_ *api.Trust, l *api.Link) { l.Peer = "c" },
		"addresses":  func(_ *api.Trust, l *api.Link) { l.Addresses = []string{"elsewhere:1"} },
		"dial":       func(_ *api.Trust, l *api.Link) { l.Dial = !l.Dial },
		"encryption": func(_ *api.Trust, l *api.Link) { l.Encryption = api.EncryptionNone },
		"streams":    func(_ *api.Trust, l *api.Link) { l.Streams = 5 },
	} {
		trust, link := e.trust, e.link
		change(&trust, &link)
		if got := e.judge(&trust, &link); got != stChanged {
			t.Errorf("%s: judge() = %s, want %s", name, got, stChanged)
		}
	}
	if got := e.judge(nil, &e.link); got != stMissing {
		t.Errorf("without trust: judge() = %s", got)
	}
	if got := e.judge(&e.trust, nil); got != stMissing {
		t.Errorf("without link: judge() = %s", got)
	}
}

func TestDefaultName(t *testing.T) {
	if got := defaultName("mi300x-0", "h100-0"); got != "h100-0--mi300x-0" {
		t.Errorf("defaultName() = %s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z0-9][a-z0-9-]{0,62}`)
		a, b := name.Draw(t, "a"), name.Draw(t, "b")
		got := defaultName(a, b)
		if got != defaultName(b, a) || !fleet.ValidName(got) || !fleet.ValidName(trustPrefix+got) {
			t.Fatalf("defaultName(%q, %q) = %q", a, b, got)
		}
	})
	long := strings.Repeat("a", 62)
	if defaultName(long, "b") == defaultName(long, "c") {
		t.Error("long names collide")
	}
}

func TestParseImportID(t *testing.T) {
	const a, b = "name=a,host=h1,profile=p", "name=b,host=h2,profile=p,port=2222"
	s, err := parseImportID(a + ";" + b)
	if err != nil || s.name != "a--b" || s.nodes[1].Port != 2222 {
		t.Errorf("parseImportID() = %+v, %v", s, err)
	}
	if s, err = parseImportID("own;" + a + ";" + b); err != nil || s.name != "own" {
		t.Errorf("parseImportID() = %+v, %v", s, err)
	}
	for id, want := range map[string]string{
		a: "two nodes", a + ";" + a: "both nodes", "Own;" + a + ";" + b: "must be 1 to 63", a + ";name=b": "node 2", "": "two nodes",
	} {
		if _, err := parseImportID(id); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseImportID(%q) error = %v, want %q", id, err, want)
		}
	}
}

func TestFabricOf(t *testing.T) {
	if f, err := fabricOf([]string{"h:9610"}, "h"); err != nil || f != nil {
		t.Errorf("a node without fabric has %v, %v", f, err)
	}
	if f, err := fabricOf([]string{"f:9610", "g:1"}, "h"); err != nil || len(f) != 2 || f[1] != (fleet.Endpoint{Address: "g", Port: 1}) {
		t.Errorf("fabricOf() = %v, %v", f, err)
	}
}
