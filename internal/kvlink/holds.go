package kvlink

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
)

// holds is what no other link may have, as far as it is known: its two nodes, and its name on each of them.
func (m model) holds() []fleet.Hold {
	s, ok := m.spec()
	if !ok {
		return nil
	}
	nodes := []string{s.nodes[0].Name, s.nodes[1].Name}
	slices.Sort(nodes)
	holder := fmt.Sprintf("a moai_kv_link %q between %s", s.name, strings.Join(nodes, " and "))
	var out []fleet.Hold
	if nodes[0] != "" {
		out = append(out, fleet.Hold{
			Key: "moai_kv_link between " + strings.Join(nodes, " "), Attribute: "nodes", What: "the link between nodes " + strings.Join(nodes, " and "), Holder: holder,
			Fix: "Two nodes have one link, which all pairs of their engines use: remove one of the two, or correct nodes",
		})
	}
	for _, n := range nodes {
		if n != "" && s.name != "" {
			out = append(out, fleet.Hold{
				Key: "moai_kv_link " + n + " " + s.name, Attribute: "name", What: fmt.Sprintf("the link name %q on node %s", s.name, n), Holder: holder,
			})
		}
	}
	return out
}
