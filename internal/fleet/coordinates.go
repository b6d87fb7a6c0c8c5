package fleet

import (
	"net"
	"slices"
	"strconv"
)

// Default ports.
const (
	DefaultSSHPort    = 22
	DefaultFabricPort = 9610 // of moaid, for KV and gateway traffic
)

// Coordinates say which node is meant and where it is.
type Coordinates struct {
	Name      string // of the moai_node resource
	MachineID string // identity; empty while nobody has asked the machine
	Host      string // SSH name or address
	Port      int    // SSH port
	Profile   string // entry of the provider's ssh_profiles
	HostKey   string // pinned SSH host key; may be empty
	Fabric    []Endpoint
}

// Endpoint is one address for KV and gateway traffic.
type Endpoint struct {
	Address    string
	Port       int // 0 means DefaultFabricPort
	RDMADevice string
}

// Addr is host:port.
func (e Endpoint) Addr() string {
	p := e.Port
	if p == 0 {
		p = DefaultFabricPort
	}
	return net.JoinHostPort(e.Address, strconv.Itoa(p))
}

// FabricAddrs are the host:port under which peers reach the node's daemon: its fabric endpoints, or the SSH host.
func (c Coordinates) FabricAddrs() []string {
	if len(c.Fabric) == 0 {
		return []string{Endpoint{Address: c.Host}.Addr()}
	}
	out := make([]string, len(c.Fabric))
	for i, e := range c.Fabric {
		out[i] = e.Addr()
	}
	return out
}

// ListenAddrs are the host:port on which the node's daemon listens: its fabric endpoints, or every address.
func (c Coordinates) ListenAddrs() []string {
	if len(c.Fabric) == 0 {
		return []string{Endpoint{Address: "0.0.0.0"}.Addr()}
	}
	return c.FabricAddrs()
}

// SameSSH reports whether both lead to the same SSH server as the same user.
func (c Coordinates) SameSSH(o Coordinates) bool {
	return c.Host == o.Host && sshPort(c.Port) == sshPort(o.Port) && c.Profile == o.Profile && c.HostKey == o.HostKey
}

// SameFabric reports whether both have the same endpoints in the same order.
func (c Coordinates) SameFabric(o Coordinates) bool {
	return slices.EqualFunc(c.Fabric, o.Fabric, func(a, b Endpoint) bool {
		return a.Addr() == b.Addr() && a.RDMADevice == b.RDMADevice
	})
}

// Equal reports whether nothing differs.
func (c Coordinates) Equal(o Coordinates) bool {
	return c.Name == o.Name && c.MachineID == o.MachineID && c.SameSSH(o) && c.SameFabric(o)
}

func sshPort(p int) int {
	if p == 0 {
		return DefaultSSHPort
	}
	return p
}
