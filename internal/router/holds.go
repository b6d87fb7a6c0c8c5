package router

import (
	"fmt"
	"net"
	"strconv"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
)

// holds is what no other router may have, as far as it is known: a name and a port of the node, on one address or on all.
func (m model) holds() []fleet.Hold {
	s, _ := m.spec()
	if s.node.Name == "" {
		return nil
	}
	holder := fmt.Sprintf("a moai_router %q that listens on %s", s.name, s.listen)
	var out []fleet.Hold
	if s.name != "" {
		out = append(out, fleet.Hold{
			Key: "moai_router " + s.node.Name + " " + s.name, Attribute: "name", What: fmt.Sprintf("the router name %q on node %s", s.name, s.node.Name), Holder: holder,
		})
	}
	n, err := port(s.listen)
	if err != nil {
		return out // not known yet, or refused elsewhere
	}
	h, _, err := net.SplitHostPort(s.listen)
	if err != nil {
		return out
	}
	if ip := net.ParseIP(h); ip != nil {
		h = ip.String()
		if ip.IsUnspecified() {
			h = ""
		}
	}
	return append(out, fleet.Hold{
		Key: "listen " + s.node.Name + " " + strconv.Itoa(n), Part: h, Attribute: "listen", What: fmt.Sprintf("port %d of node %s", n, s.node.Name), Holder: holder,
		Fix: "Give each router of a node an address and port of its own, or serve all pairs by one router",
	})
}
