package node

import (
	"fmt"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
)

// holds is what no other node may have, as far as it is known.
func (m model) holds() []fleet.Hold {
	name := m.Name.ValueString()
	if name == "" {
		return nil
	}
	holder := fmt.Sprintf("a moai_node %q", name)
	if c := m.ref().Coordinates; c.Host != "" {
		port := c.Port
		if port == 0 {
			port = fleet.DefaultSSHPort
		}
		holder += fmt.Sprintf(" at %s port %d", c.Host, port)
	}
	return []fleet.Hold{{Key: "moai_node " + name, Attribute: "name", What: fmt.Sprintf("the node name %q", name), Holder: holder}}
}
