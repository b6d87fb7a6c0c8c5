package router

import (
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/config"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
	"github.com/moai-dev/terraform-provider-moai/internal/service"
)

const testKey = "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

func engineAt(node, host, name string) engineref.Ref {
	return engineref.Ref{Name: name, Node: noderef.Ref{
		Coordinates: fleet.Coordinates{Name: node, Host: host}, PublicKey: testKey,
	}}
}

func goodSpec() spec {
	return spec{
		name: "front", listen: "0.0.0.0:8000",
		node: noderef.Ref{Coordinates: fleet.Coordinates{Name: "gateway", Host: "192.0.2.10"}},
		pairs: []pair{{
			name: "main", model: "m", known: true,
			prefill: []engineref.Ref{engineAt("h100-0", "192.0.2.11", "p0")}, decode: []engineref.Ref{engineAt("mi300x-0", "192.0.2.21", "d0")},
		}},
	}
}

// What is written is what the gateway reads.
func TestConfigIsReadByTheGateway(t *testing.T) {
	t.Parallel()
	d, err := desire("prod", goodSpec())
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse(d.service.Config.Content)
	if err != nil {
		t.Fatal(err)
	}
	e := c.Pairs[0].Decode[0]
	if c.KeyFile != "/var/lib/moai/router-front/router.key" || e.Addresses[0] != "192.0.2.21:9610" || e.Engine != "d0" {
		t.Errorf("got %+v", c)
	}
	if !strings.Contains(d.service.UnitText, "StateDirectory=moai/router-front\n") || strings.Contains(d.service.UnitText, "CAP_NET") {
		t.Errorf("unit:\n%s", d.service.UnitText)
	}
}

func TestLowPortsNeedACapability(t *testing.T) {
	t.Parallel()
	s := goodSpec()
	s.listen = "0.0.0.0:80"
	d, err := desire("prod", s)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(d.service.UnitText, "AmbientCapabilities=CAP_NET_BIND_SERVICE\n") {
		t.Errorf("unit:\n%s", d.service.UnitText)
	}
}

func TestEndpoint(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		"0.0.0.0:8000":      "http://192.0.2.10:8000/v1",
		":8000":             "http://192.0.2.10:8000/v1",
		"[::]:8000":         "http://192.0.2.10:8000/v1",
		"198.51.100.1:80":   "http://198.51.100.1:80/v1",
		"[2001:db8::1]:443": "http://[2001:db8::1]:443/v1",
	} {
		if got, err := endpoint(listen, goodSpec().node.Coordinates); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", listen, got, err, want)
		}
	}
	for _, bad := range []string{"", "8000", "0.0.0.0:0", "0.0.0.0:99999", "0.0.0.0:http"} {
		if got, err := endpoint(bad, goodSpec().node.Coordinates); err == nil {
			t.Errorf("%q gives %q", bad, got)
		}
	}
}

func TestTrust(t *testing.T) {
	t.Parallel()
	s := goodSpec()
	want := s.trust(testKey)
	if want.Role != api.RoleGateway || want.Name != "router-gateway--front" {
		t.Errorf("got %+v", want)
	}
	other := want
	other.PublicKey = "ed25519:x"
	if judgeTrust(want, want) != service.OK || judgeTrust(other, want) != service.Changed {
		t.Error("trust is misjudged")
	}
	long := trustName(strings.Repeat("n", 63), strings.Repeat("r", 63))
	if !fleet.ValidName(long) || long == trustName(strings.Repeat("n", 63), strings.Repeat("r", 62)+"s") {
		t.Errorf("trust name %q is not valid, or not unique", long)
	}
	if !validKey(testKey) || validKey("ed25519:AAAA") || validKey(testKey[8:]) {
		t.Error("keys are misjudged")
	}
	s.pairs[0].decode[0].Node.PublicKey = ""
	if got := s.keyless(); len(got) != 1 || got[0] != "mi300x-0" {
		t.Errorf("keyless: %v", got)
	}
}
