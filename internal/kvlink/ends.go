package kvlink

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
)

// Transports as configured.
const (
	transportAuto = "auto"
	transportTCP  = "tcp"
	transportRDMA = "rdma"
)

// maxName leaves room for the prefix of trust entries within 63 characters.
const maxName = 63 - len(trustPrefix)

const trustPrefix = "link-"

// Words for what became of an end.
const (
	stOK      = "ok"
	stChanged = "changed"
	stMissing = "missing"
	stSilent  = "unresponsive" // the machine answers, its daemon does not
)

// spec is a link in plain Go.
type spec struct {
	name       string
	nodes      [2]noderef.Ref
	encryption api.Encryption
	streams    int
}

// end is what one node's daemon shall hold.
type end struct {
	node  noderef.Ref
	trust api.Trust
	link  api.Link
}

// ends decides what each daemon shall hold. Exactly one of them dials: the one whose public key sorts first, so that both
// sides and every later run agree without asking.
func (s spec) ends() [2]end {
	var out [2]end
	for i, n := range s.nodes {
		peer := s.nodes[1-i]
		out[i] = end{
			node:  n,
			trust: api.Trust{Name: trustPrefix + s.name, PublicKey: peer.PublicKey, Role: api.RolePeer, Node: peer.Name},
			link: api.Link{
				Name: s.name, Peer: peer.Name, PeerKey: peer.PublicKey, Addresses: peer.FabricAddrs(), Dial: n.PublicKey < peer.PublicKey,
				Transport: transportTCP, Encryption: s.encryption, Streams: s.streams,
			},
		}
	}
	return out
}

// judge compares what a daemon holds with what it shall hold; nil means that the daemon said there is none.
func (e end) judge(trust *api.Trust, link *api.Link) string {
	switch {
	case trust == nil || link == nil:
		return stMissing
	case *trust != e.trust, !sameLink(*link, e.link):
		return stChanged
	}
	return stOK
}

func sameLink(a, b api.Link) bool {
	if !slices.Equal(a.Addresses, b.Addresses) {
		return false
	}
	a.Addresses, b.Addresses = nil, nil
	return a.Name == b.Name && a.Peer == b.Peer && a.PeerKey == b.PeerKey && a.Dial == b.Dial && a.Transport == b.Transport &&
		a.Encryption == b.Encryption && a.Streams == b.Streams
}

// defaultName is the name of a link that was given none: that of its nodes, in order, cut and made unique where it would be
// too long.
func defaultName(a, b string) string {
	if b < a {
		a, b = b, a
	}
	name := a + "--" + b
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	tail := "-" + hex.EncodeToString(sum[:4])
	return name[:maxName-len(tail)] + tail
}

// keyless names the nodes whose daemon has no known key.
func (s spec) keyless() []string {
	var out []string
	for _, n := range s.nodes {
		if n.PublicKey == "" {
			out = append(out, n.Name)
		}
	}
	return out
}

// takenError says that a daemon holds another link under the same name.
type takenError struct {
	node  string
	found api.Link
}

// Error implements error.
func (e *takenError) Error() string {
	return fmt.Sprintf("the daemon of node %s already has a link %q, to node %s", e.node, e.found.Name, e.found.Peer)
}

// Explain implements diagnose.Explained.
func (e *takenError) Explain() (summary, fix string) {
	return "Link name is taken", "Give this link another name"
}

// DiagnosticAttribute implements diagnose.Attributed.
func (e *takenError) DiagnosticAttribute() string { return "name" }

// downError says why a link does not come up.
type downError struct {
	ends   [2]end
	status [2]*api.LinkStatus
}

// Error implements error.
func (e *downError) Error() string {
	text := "the link is not up"
	for i, s := range e.status {
		if s != nil && s.LastError != "" {
			text += fmt.Sprintf("; %s says: %s", e.ends[i].node.Name, s.LastError)
		}
	}
	return text
}

// Explain implements diagnose.Explained.
func (e *downError) Explain() (summary, fix string) {
	from, to := e.ends[0], e.ends[1]
	if to.link.Dial {
		from, to = to, from
	}
	return "KV link does not come up", fmt.Sprintf("%s connects to %s at %v: check that this address and port can be reached from there (route, firewall, security group), "+
		"and set fabric.endpoints of %s if KV traffic goes elsewhere", from.node.Name, to.node.Name, from.link.Addresses, to.node.Name)
}

// probeError says that the bytes that arrived were not those that were sent, or did not arrive.
type probeError struct {
	from, to string
	reason   string
}

// Error implements error.
func (e *probeError) Error() string {
	return fmt.Sprintf("the probe transfer from %s to %s failed: %s", e.from, e.to, e.reason)
}

// Explain implements diagnose.Explained.
func (e *probeError) Explain() (summary, fix string) {
	return "KV does not arrive as sent", "The link is up, but a probe transfer over it failed. Look at the logs of " + fleet.KVDUnit + " on both nodes"
}
