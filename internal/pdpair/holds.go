package pdpair

import (
	"fmt"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
)

// holds is what no other pair may have, as far as it is known: its name on each of its nodes.
func (m model) holds() []fleet.Hold {
	p, ok := m.pools()
	name := m.Name.ValueString()
	if !ok || name == "" {
		return nil
	}
	holder := fmt.Sprintf("a moai_pd_pair %q of %s and %s", name, ids(p.prefill), ids(p.decode))
	var out []fleet.Hold
	for _, e := range p.nodes() {
		if node := e.Node.Name; node != "" {
			out = append(out, fleet.Hold{
				Key: "moai_pd_pair " + node + " " + name, Attribute: "name", What: fmt.Sprintf("the pair name %q on node %s", name, node), Holder: holder,
			})
		}
	}
	return out
}

func ids(es []engineref.Ref) string {
	out := make([]string, len(es))
	for i, e := range es {
		out[i] = e.ID()
	}
	return strings.Join(out, ", ")
}
