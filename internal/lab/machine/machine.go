package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/network"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/tree"
)

// Machine is one host of a lab on this machine.
type Machine struct {
	Plan  plan.Plan
	Host  plan.Host
	Dir   string // the host's state folder
	Image string // the shared lower layer
	Disk  string // size of the host's disk as mount(8) takes it, e.g. "1g"; memory is used only as it is written
	Group Group
	Keys  Keys
}

// Root is the host's root filesystem as this machine sees it: the disk, without what the host mounts itself.
func (m *Machine) Root() string { return filepath.Join(m.Dir, "root") }

// Console is the file that holds what the host wrote to its console, over all its boots.
func (m *Machine) Console() string { return filepath.Join(m.Dir, "console") }

func (m *Machine) disk() string   { return filepath.Join(m.Dir, "disk") }
func (m *Machine) marker() string { return filepath.Join(m.Dir, "made") }

// Made reports whether the host was made completely, since this machine booted.
func (m *Machine) Made() bool {
	mark, err := os.ReadFile(m.marker())
	return err == nil && string(mark) == bootID() && network.Exists(m.Plan.HostNamespace(m.Host.Name))
}

// Make makes the host's disk and cables. What an interrupted Make left is thrown away first.
func (m *Machine) Make(ctx context.Context) error {
	if err := m.Destroy(ctx); err != nil {
		return err
	}
	for _, dir := range []string{m.disk(), m.Root()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("host %s: %w", m.Host.Name, err)
		}
	}
	source := "moai-lab-" + m.Plan.HostNamespace(m.Host.Name)
	if err := unix.Mount(source, m.disk(), "tmpfs", 0, "mode=755,size="+m.Disk); err != nil {
		return fmt.Errorf("host %s: disk of size %s: %w", m.Host.Name, m.Disk, err)
	}
	upper, work := filepath.Join(m.disk(), "upper"), filepath.Join(m.disk(), "work")
	for _, dir := range []string{upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("host %s: %w", m.Host.Name, err)
		}
	}
	layers := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", m.Image, upper, work)
	if err := unix.Mount(source, m.Root(), "overlay", 0, layers); err != nil {
		return fmt.Errorf("host %s: overlay over %s: %w", m.Host.Name, m.Image, err)
	}
	if err := m.seed(ctx); err != nil {
		return fmt.Errorf("host %s: %w", m.Host.Name, err)
	}
	if err := network.Attach(ctx, m.Plan, m.Host); err != nil {
		return fmt.Errorf("host %s: %w", m.Host.Name, err)
	}
	if err := os.WriteFile(m.marker(), []byte(bootID()), 0o600); err != nil {
		return fmt.Errorf("host %s: %w", m.Host.Name, err)
	}
	return nil
}

// Destroy ends the host's processes and takes away all that Make and Start made, from any half state.
func (m *Machine) Destroy(ctx context.Context) error {
	return errors.Join(
		os.RemoveAll(m.marker()),
		m.Group.Kill(ctx),
		m.Group.Remove(ctx),
		network.Remove(ctx, m.Plan.HostNamespace(m.Host.Name)),
		tree.Remove(m.Dir),
	)
}

// State is what a host is doing.
type State string

// The states of a host.
const (
	Off    State = "off"
	On     State = "on"
	Frozen State = "frozen"
)

// State looks up what the host is doing now.
func (m *Machine) State() State {
	switch box := m.Group.box(); {
	case !box.populated():
		return Off
	case box.frozen():
		return Frozen
	default:
		return On
	}
}

func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
