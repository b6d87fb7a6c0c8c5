// Package network makes a lab's cables: one namespace with two bridges, a namespace a host, a veth pair a host and
// network. Nothing is added to the root namespace, and no route leads out.
//
// Rendering the commands is apart from running them.
package network

import (
	"fmt"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
)

// labScript is the input of `ip -n NAMESPACE -batch -` that makes the bridges. Bridges have no IPv6 address: the
// lab is IPv4 only, and link-local chatter would show up in the hosts' neighbour tables.
func labScript() string {
	lines := []string{"link set dev lo up"}
	for _, n := range plan.Nets {
		br := n.Bridge()
		lines = append(lines,
			"link add name "+br+" type bridge forward_delay 0 stp_state 0",
			"link set dev "+br+" addrgenmode none",
			"address add "+n.Prefix().String()+" dev "+br,
			"link set dev "+br+" up")
	}
	return strings.Join(lines, "\n") + "\n"
}

// filter is the nftables table by which hosts are cut off. It lies in the bridge family of the lab's namespace, so a
// host cannot see it, and goes by hardware address, so that ARP is cut too.
const filter = `table bridge lab {
	set cut { type ether_addr . ether_addr; }
	set alone { type ether_addr; }
	chain forward { type filter hook forward priority 0; policy accept;
		ether saddr . ether daddr @cut drop
		ether saddr @alone drop
		ether daddr @alone drop
	}
	chain input { type filter hook input priority 0; policy accept;
		ether saddr @alone drop
	}
	chain output { type filter hook output priority 0; policy accept;
		ether daddr @alone drop
	}
}
`

// cable is the command that lays one cable: both ends are born in their namespaces, never in the root one.
func cable(p plan.Plan, h plan.Host, n plan.Net) []string {
	return []string{"ip", "link", "add", "name", h.Port(n), "netns", p.Namespace(), "type", "veth",
		"peer", "name", n.Interface(), "address", h.MAC(n), "netns", p.HostNamespace(h.Name)}
}

// portScript is the input of `ip -n LAB -batch -` that plugs a host's cables into the bridges.
func portScript(h plan.Host) string {
	var b strings.Builder
	for _, n := range plan.Nets {
		fmt.Fprintf(&b, "link set dev %s addrgenmode none\nlink set dev %s master %s up\n", h.Port(n), h.Port(n), n.Bridge())
	}
	return b.String()
}

// hostScript is the input of `ip -n HOST -batch -` that gives a host its addresses. There is no default route: what
// is not in the lab is unreachable at once, and says so.
func hostScript(h plan.Host) string {
	var b strings.Builder
	b.WriteString("link set dev lo up\n")
	for _, n := range plan.Nets {
		fmt.Fprintf(&b, "address add %s dev %s\nlink set dev %s up\n", h.CIDR(n), n.Interface(), n.Interface())
	}
	return b.String()
}

// linkScript sets the bridge's ends of a host's cables up or down.
func linkScript(h plan.Host, state string) string {
	var b strings.Builder
	for _, n := range plan.Nets {
		fmt.Fprintf(&b, "link set dev %s %s\n", h.Port(n), state)
	}
	return b.String()
}

// cutScript is nft input that cuts (or heals) every pair of the hosts on the given networks; a single host is cut
// off from all others and from the lab's namespace.
func cutScript(heal bool, hosts []plan.Host, nets []plan.Net) string {
	verbs := []string{"add"}
	if heal {
		verbs = []string{"add", "delete"} // add first: deleting what is not there is an error
	}
	var b strings.Builder
	put := func(set, element string) {
		for _, verb := range verbs {
			fmt.Fprintf(&b, "%s element bridge lab %s { %s }\n", verb, set, element)
		}
	}
	for _, n := range nets {
		if len(hosts) == 1 {
			put("alone", hosts[0].MAC(n))
			continue
		}
		for _, a := range hosts {
			for _, z := range hosts {
				if a.Name != z.Name {
					put("cut", a.MAC(n)+" . "+z.MAC(n))
				}
			}
		}
	}
	return b.String()
}
