package userns

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// control does something with a socket on which network devices can be configured.
func control(do func(fd int) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	return errors.Join(do(fd), unix.Close(fd))
}

// loopbackUp turns the namespace's loopback device on.
func loopbackUp() error {
	return control(func(fd int) error {
		r, err := unix.NewIfreq("lo")
		if err != nil {
			return err
		}
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r); err != nil {
			return fmt.Errorf("turn on the loopback device: %w", err)
		}
		return nil
	})
}

// addAddress gives the loopback device one more address, as its alias number n. The mask is that of one host: a wider one
// would make the device answer for addresses that nobody has.
func addAddress(n int, address string) error {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return err
	}
	return control(func(fd int) error {
		for _, set := range []struct {
			request uint
			value   netip.Addr
		}{{unix.SIOCSIFADDR, a}, {unix.SIOCSIFNETMASK, netip.AddrFrom4([4]byte{255, 255, 255, 255})}} {
			r, err := unix.NewIfreq(fmt.Sprintf("lo:%d", n))
			if err != nil {
				return err
			}
			if err := r.SetInet4Addr(set.value.AsSlice()); err != nil {
				return err
			}
			if err := unix.IoctlIfreq(fd, set.request, r); err != nil {
				return fmt.Errorf("give the loopback device %s: %w", address, err)
			}
		}
		return nil
	})
}
