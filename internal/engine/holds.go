package engine

import (
	"fmt"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
)

// holds is what no other engine may have, as far as it is known.
func (m model) holds() []fleet.Hold {
	name, node := m.Name.ValueString(), noderef.Decode(m.Node).Name
	if name == "" || node == "" {
		return nil
	}
	holder := fmt.Sprintf("a moai_engine %q", name)
	if role := m.Role.ValueString(); role != "" {
		holder += " of role " + role
	}
	if model := text(m.Model, "id"); model != "" {
		holder += " with model " + model
	}
	return []fleet.Hold{{
		Key: "moai_engine " + node + " " + name, Attribute: "name", What: fmt.Sprintf("the engine name %q on node %s", name, node), Holder: holder,
	}}
}
