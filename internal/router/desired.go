package router

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/host"
	"github.com/moai-dev/terraform-provider-moai/internal/importid"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/config"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
	"github.com/moai-dev/terraform-provider-moai/internal/service"
	"github.com/moai-dev/terraform-provider-moai/internal/systemd"
)

const (
	userDaemon = "moai"
	groupMoai  = "moai"
	writer     = "terraform-provider-moai"

	// firstOpenPort is the lowest that a process without privileges may listen on.
	firstOpenPort = 1024
)

func resourceName(name string) string { return "moai_router." + name }
func unitName(name string) string     { return "moai-router-" + name + ".service" }
func configPath(name string) string   { return "/etc/moai/routers/" + name + ".json" }
func stateDir(name string) string     { return "/var/lib/moai/router-" + name }
func keyPath(name string) string      { return stateDir(name) + "/router.key" }

// pair is a passed pair in plain Go.
type pair struct {
	name            string
	model           string
	prefill, decode []engineref.Ref
	known           bool
}

// spec is a router in plain Go.
type spec struct {
	name   string
	node   noderef.Ref
	listen string
	pairs  []pair
}

// desired is what belongs on the router's host.
type desired struct {
	service service.Service
}

// desire computes it. Everything of s is known.
func desire(fleetName string, s spec) (desired, error) {
	own := systemd.Owner{Fleet: fleetName, Resource: resourceName(s.name), Writer: writer}
	text, err := s.unit().Render(own)
	if err != nil {
		return desired{}, fmt.Errorf("render %s: %w", unitName(s.name), err)
	}
	c := s.config()
	file, err := c.Render()
	if err != nil {
		return desired{}, fmt.Errorf("the router's configuration: %w", err)
	}
	return desired{service: service.Service{
		Owner: own, Unit: unitName(s.name), UnitText: text,
		ImportID: importid.ID{Name: s.name, Node: s.node.Coordinates}.String(),
		Config:   host.File{Path: configPath(s.name), Content: file, Mode: 0o640, Group: groupMoai},
	}}, nil
}

func (s spec) config() *config.RouterConfig {
	c := &config.RouterConfig{Name: s.name, Listen: s.listen, KeyFile: keyPath(s.name)}
	for _, p := range s.pairs {
		c.Pairs = append(c.Pairs, config.Pair{Name: p.name, Model: p.model, Prefill: upstreams(p.prefill), Decode: upstreams(p.decode)})
	}
	return c
}

func upstreams(es []engineref.Ref) []config.Engine {
	out := make([]config.Engine, len(es))
	for i, e := range es {
		out[i] = config.Engine{Node: e.Node.Name, Engine: e.Name, Addresses: e.Node.FabricAddrs(), PublicKey: e.Node.PublicKey}
	}
	return out
}

// unit is the router's unit. A start waits until it serves.
func (s spec) unit() systemd.Service {
	hard := systemd.Strict()
	if p, err := port(s.listen); err == nil && p > 0 && p < firstOpenPort {
		hard.Capabilities = []string{"CAP_NET_BIND_SERVICE"}
	}
	return systemd.Service{
		Description:        "moai router " + s.name,
		After:              []string{"network-online.target"},
		Wants:              []string{"network-online.target"},
		Type:               "notify",
		Exec:               []string{host.MoaidPath, "router", "--config", configPath(s.name)},
		User:               userDaemon,
		Group:              groupMoai,
		UMask:              "0027",
		StateDirectory:     "moai/router-" + s.name,
		StateDirectoryMode: "0700",
		TimeoutStartSec:    30 * time.Second,
		TimeoutStopSec:     45 * time.Second,
		NoStartLimit:       true,
		LimitNOFILE:        65536,
		Hardening:          hard,
	}
}

// nodes gives one engine of each node of the pairs, in order of first mention.
func (s spec) nodes() []engineref.Ref {
	var out []engineref.Ref
	seen := map[string]bool{}
	for _, p := range s.pairs {
		for _, e := range slices.Concat(p.prefill, p.decode) {
			if !seen[e.Node.Name] {
				seen[e.Node.Name] = true
				out = append(out, e)
			}
		}
	}
	return out
}

// keyless names the nodes whose daemon has no known key.
func (s spec) keyless() []string {
	var out []string
	for _, e := range s.nodes() {
		if e.Node.PublicKey == "" {
			out = append(out, e.Node.Name)
		}
	}
	return out
}

// trust is the entry that lets the router in, on every node of its pairs. Its name
// is made of the router's node and name, so that routers of one name do not meet.
func (s spec) trust(publicKey string) api.Trust {
	return api.Trust{Name: trustName(s.node.Name, s.name), PublicKey: publicKey, Role: api.RoleGateway, Node: s.node.Name}
}

func trustName(node, router string) string {
	const most = 63
	name := "router-" + node + "--" + router
	if len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	tail := "-" + hex.EncodeToString(sum[:4])
	return name[:most-len(tail)] + tail
}

func port(listen string) (int, error) {
	_, p, err := net.SplitHostPort(listen)
	if err != nil {
		return 0, fmt.Errorf("%q is no address:port", listen)
	}
	n, err := strconv.Atoi(p)
	if err != nil || n < 1 || n > 65535 {
		return 0, fmt.Errorf("%q has no port from 1 to 65535", listen)
	}
	return n, nil
}

// endpoint is the base URL for clients: the listen address, or the host under
// which the node is reached if the router listens on all.
func endpoint(listen string, node fleet.Coordinates) (string, error) {
	n, err := port(listen)
	if err != nil {
		return "", err
	}
	h, _, err := net.SplitHostPort(listen)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(h); h == "" || ip != nil && ip.IsUnspecified() {
		h = node.Host
	}
	if h == "" {
		return "", nil
	}
	return "http://" + net.JoinHostPort(h, strconv.Itoa(n)) + "/v1", nil
}
