// Package plan decides, without touching anything, what a lab is made of: which hosts, with which users and
// hardware, at which addresses and under which names.
package plan

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Net is one of the two networks of a lab.
type Net int

// The two networks: management (eth0, where sshd answers) and fabric (eth1, where KV traffic goes).
const (
	Mgmt Net = iota
	Fabric
)

// Nets lists both networks in the order of a host's interfaces.
var Nets = []Net{Mgmt, Fabric}

// String returns the network's short name, as it stands in interface names.
func (n Net) String() string {
	if n == Fabric {
		return "fabric"
	}
	return "mgmt"
}

// Bridge is the name of the network's bridge in the lab's namespace.
func (n Net) Bridge() string { return "br-" + n.String() }

// Interface is the name of a host's interface on the network.
func (n Net) Interface() string { return fmt.Sprintf("eth%d", int(n)) }

// Prefix is the network with its lab-side address (.1), in CIDR notation.
func (n Net) Prefix() netip.Prefix { return netip.PrefixFrom(n.address(1), 24) }

func (n Net) address(last int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(77 + int(n)), 0, byte(last)})
}

const (
	firstAddress = 10  // host number 1 has .11
	maxHosts     = 200 // so that the last octet stays below 255
	sshPort      = 22
)

// Host is one machine of a lab.
type Host struct {
	Name    string `json:"name"`
	Number  int    `json:"number"` // 1 and up; never reused while the lab exists: addresses follow from it
	User    string `json:"user"`   // the only account with a key
	Profile string `json:"profile,omitempty"`
	UUID    string `json:"uuid"` // also its machine-id, without the dashes
}

// Address is the host's address on a network.
func (h Host) Address(n Net) netip.Addr { return n.address(firstAddress + h.Number) }

// CIDR is the host's address with the prefix length.
func (h Host) CIDR(n Net) string { return netip.PrefixFrom(h.Address(n), 24).String() }

// MAC is the host's hardware address on a network: locally administered, unicast, the same at every boot.
func (h Host) MAC(n Net) string {
	return fmt.Sprintf("02:6c:%02x:00:00:%02x", 77+int(n), firstAddress+h.Number)
}

// Port is the name of the bridge's end of the host's cable.
func (h Host) Port(n Net) string { return fmt.Sprintf("%s%d", n, h.Number) }

// SSHPort is where sshd listens.
func (h Host) SSHPort() int { return sshPort }

// MachineID is the UUID in the form of /etc/machine-id.
func (h Host) MachineID() string { return strings.ReplaceAll(h.UUID, "-", "") }

// Plan is a lab: its name and its hosts.
type Plan struct {
	Name  string `json:"name"`
	Hosts []Host `json:"hosts"`
}

// DefaultHosts are the hosts of a lab that nobody asked anything special of.
var DefaultHosts = []string{"gateway", "h100-0", "mi300x-0"}

var (
	// No dash in a lab's name: "NAME-" is then a prefix that no other lab's namespaces have.
	labName  = regexp.MustCompile(`^[a-z][a-z0-9]{0,15}$`)
	hostName = regexp.MustCompile(`^(gateway|h100|mi300x)(-[0-9]{1,3})?$`)
)

// New returns a lab without hosts, or an error when the name cannot stand in names of namespaces and cgroups.
func New(name string) (Plan, error) {
	if !labName.MatchString(name) {
		return Plan{}, fmt.Errorf("lab name %q: want 1 to 16 lower-case letters and digits, a letter first", name)
	}
	return Plan{Name: name}, nil
}

// With returns the plan with the named hosts added; hosts that it has already stay as they are. uuid makes the
// identity of a new host.
func (p Plan) With(names []string, uuid func() string) (Plan, error) {
	out := Plan{Name: p.Name, Hosts: slices.Clone(p.Hosts)}
	for _, name := range names {
		if _, known := out.Host(name); known {
			continue
		}
		m := hostName.FindStringSubmatch(name)
		if m == nil {
			return Plan{}, fmt.Errorf("host %q: want gateway, h100-N or mi300x-N", name)
		}
		next := 1
		for _, h := range out.Hosts {
			next = max(next, h.Number+1)
		}
		if next > maxHosts {
			return Plan{}, fmt.Errorf("host %q: a lab has at most %d hosts", name, maxHosts)
		}
		h := Host{Name: name, Number: next, UUID: uuid()}
		switch m[1] {
		case "h100":
			h.User, h.Profile = "ubuntu", "h100x8"
		case "mi300x":
			h.User, h.Profile = "ops", "mi300x8"
		default:
			h.User = "admin"
		}
		out.Hosts = append(out.Hosts, h)
	}
	return out, nil
}

// Host finds a host by name.
func (p Plan) Host(name string) (Host, bool) {
	i := slices.IndexFunc(p.Hosts, func(h Host) bool { return h.Name == name })
	if i < 0 {
		return Host{}, false
	}
	return p.Hosts[i], true
}

// Names lists the hosts' names in the order in which they were asked for.
func (p Plan) Names() []string {
	var names []string
	for _, h := range p.Hosts {
		names = append(names, h.Name)
	}
	return names
}

// Namespace is the lab's own network namespace, which holds the bridges: from it every host can be reached.
func (p Plan) Namespace() string { return p.Name + "-net" }

// HostNamespace is the network namespace of one host.
func (p Plan) HostNamespace(host string) string { return p.Name + "-" + host }

// Owns reports whether a network namespace of that name belongs to the lab.
func (p Plan) Owns(namespace string) bool { return strings.HasPrefix(namespace, p.Name+"-") }

// Cgroup is the lab's cgroup under the root of the hierarchy: everything that the lab starts lives below it.
func (p Plan) Cgroup() string { return "moai-lab-" + p.Name }
