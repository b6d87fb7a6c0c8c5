// Package link configures network devices of the namespace in which it is called, by the kernel's own interfaces: the lab
// of an ordinary user cannot count on iproute2.
package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Up turns a device on.
func Up(name string) error {
	err := control(func(fd int) error {
		r, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
	})
	if err != nil {
		return fmt.Errorf("turn on %s: %w", name, err)
	}
	return nil
}

// SetAddress gives a device its IPv4 address, with the prefix's length.
func SetAddress(name string, p netip.Prefix) error {
	mask := net.CIDRMask(p.Bits(), 32)
	err := control(func(fd int) error {
		for _, set := range []struct {
			request uint
			value   []byte
		}{{unix.SIOCSIFADDR, p.Addr().AsSlice()}, {unix.SIOCSIFNETMASK, mask}} {
			r, err := unix.NewIfreq(name)
			if err != nil {
				return err
			}
			if err := r.SetInet4Addr(set.value); err != nil {
				return err
			}
			if err := unix.IoctlIfreq(fd, set.request, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("give %s the address %s: %w", name, p, err)
	}
	return nil
}

// control does something with a socket on which devices can be configured.
func control(do func(fd int) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(do(fd), unix.Close(fd))
}

// AddBridge makes a bridge and turns it on.
func AddBridge(name string) error {
	m := newMessage(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	m.info(0, 0)
	m.text(unix.IFLA_IFNAME, name)
	m.nest(unix.IFLA_LINKINFO, func() { m.text(unix.IFLA_INFO_KIND, "bridge") })
	if err := m.send(); err != nil {
		return fmt.Errorf("make bridge %s: %w", name, err)
	}
	return Up(name)
}

// AddCable lays a cable: one end, port, is plugged into a bridge here; the other, called device, is in the network namespace of
// a process. Its hardware address is the same whenever the cable is laid anew: others remember it.
func AddCable(port, bridge, device, address string, pid int) error {
	mac, err := net.ParseMAC(address)
	if err != nil {
		return err
	}
	b, err := net.InterfaceByName(bridge)
	if err != nil {
		return fmt.Errorf("bridge %s: %w", bridge, err)
	}
	if old, err := net.InterfaceByName(port); err == nil { // of a host that ended a moment ago
		m := newMessage(unix.RTM_DELLINK, 0)
		m.info(old.Index, 0)
		if err := m.send(); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove the old cable %s: %w", port, err)
		}
	}
	const vethPeer = 1 // VETH_INFO_PEER
	m := newMessage(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	m.info(0, 0)
	m.text(unix.IFLA_IFNAME, port)
	m.nest(unix.IFLA_LINKINFO, func() {
		m.text(unix.IFLA_INFO_KIND, "veth")
		m.nest(unix.IFLA_INFO_DATA, func() {
			m.nest(vethPeer, func() {
				m.info(0, 0)
				m.text(unix.IFLA_IFNAME, device)
				m.nest(unix.IFLA_ADDRESS, func() { m.b = append(m.b, mac...) })
				m.number(unix.IFLA_NET_NS_PID, uint32(pid))
			})
		})
	})
	if err := m.send(); err != nil {
		return fmt.Errorf("lay cable %s: %w", port, err)
	}
	end, err := net.InterfaceByName(port)
	if err != nil {
		return err
	}
	m = newMessage(unix.RTM_NEWLINK, 0)
	m.info(end.Index, unix.IFF_UP)
	m.number(unix.IFLA_MASTER, uint32(b.Index))
	if err := m.send(); err != nil {
		return fmt.Errorf("plug cable %s into %s: %w", port, bridge, err)
	}
	return nil
}

// message is one request to the kernel's routing socket.
type message struct{ b []byte }

const headerLength = 16

func newMessage(kind, flags uint16) *message {
	m := &message{b: make([]byte, headerLength)}
	binary.NativeEndian.PutUint16(m.b[4:], kind)
	binary.NativeEndian.PutUint16(m.b[6:], flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	return m
}

// info appends the fixed part about a device; flags are set, none is cleared.
func (m *message) info(index int, flags uint32) {
	b := make([]byte, 16)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], flags)
	binary.NativeEndian.PutUint32(b[12:], flags)
	m.b = append(m.b, b...)
}

// nest appends an attribute that has what add appends.
func (m *message) nest(kind uint16, add func()) {
	start := len(m.b)
	m.b = append(m.b, 0, 0, 0, 0)
	add()
	binary.NativeEndian.PutUint16(m.b[start:], uint16(len(m.b)-start))
	binary.NativeEndian.PutUint16(m.b[start+2:], kind)
	for len(m.b)%4 != 0 {
		m.b = append(m.b, 0)
	}
}

func (m *message) text(kind uint16, s string) {
	m.nest(kind, func() { m.b = append(append(m.b, s...), 0) })
}

func (m *message) number(kind uint16, n uint32) {
	m.nest(kind, func() { m.b = binary.NativeEndian.AppendUint32(m.b, n) })
}

// send sends the request and reads whether it was done.
func (m *message) send() (err error) {
	binary.NativeEndian.PutUint32(m.b, uint32(len(m.b)))
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if err := unix.Sendto(fd, m.b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 8192)
	n, _, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		return err
	}
	if n < headerLength+4 || binary.NativeEndian.Uint16(buf[4:]) != unix.NLMSG_ERROR {
		return errors.New("the kernel's answer is not understood")
	}
	if code := int32(binary.NativeEndian.Uint32(buf[headerLength:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
