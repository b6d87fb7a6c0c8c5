package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/network"
)

// Start powers the host on. It does not wait for the boot: Ready does.
func (m *Machine) Start(ctx context.Context) error {
	if m.Group.populated() {
		return fmt.Errorf("host %s is on already", m.Host.Name)
	}
	if err := m.Group.make(); err != nil {
		return fmt.Errorf("host %s: %w", m.Host.Name, err)
	}
	if err := network.Links(ctx, m.Plan, m.Host, true); err != nil {
		return fmt.Errorf("host %s: %w", m.Host.Name, err)
	}
	console, err := os.OpenFile(m.Console(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("host %s: console: %w", m.Host.Name, err)
	}
	defer func() { _ = console.Close() }()
	group, err := os.Open(m.Group.keeper().dir)
	if err != nil {
		return fmt.Errorf("host %s: cgroup: %w", m.Host.Name, err)
	}
	defer func() { _ = group.Close() }()

	args := keeperCommand(m.Plan.HostNamespace(m.Host.Name), m.Group.box().dir, spawnCommand(m.Plan, m.Host, m.Root()))
	// Not bound to ctx: the host goes on when the command that started it ends.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), args[0], args[1:]...)
	cmd.Dir, cmd.Env = "/", keeperEnv()
	cmd.Stdout, cmd.Stderr = console, console
	// Born in its cgroup: there is no moment in which killing the cgroup would miss it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: int(group.Fd())}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("host %s: start: %w", m.Host.Name, err)
	}
	go func() { _ = cmd.Wait() }() // so that a long-lived caller keeps no zombie
	return nil
}

// Cut is a power cut: no process, no link, nothing answers. The disk stays.
func (m *Machine) Cut(ctx context.Context) error {
	err := errors.Join(network.Links(ctx, m.Plan, m.Host, false), m.Group.Kill(ctx), m.Group.Remove(ctx))
	if err != nil {
		return fmt.Errorf("host %s: power cut: %w", m.Host.Name, err)
	}
	return nil
}

// Freeze stops every process of the host where it stands; its kernel goes on acknowledging packets.
func (m *Machine) Freeze() error { return m.freeze(true) }

// Thaw lets a frozen host go on.
func (m *Machine) Thaw() error { return m.freeze(false) }

func (m *Machine) freeze(on bool) error {
	if m.State() == Off {
		return fmt.Errorf("host %s is off", m.Host.Name)
	}
	return m.Group.box().freeze(on)
}

// Leader is the process id, on this machine, of the host's process 1.
func (m *Machine) Leader() (int, error) {
	depth := 2 // ours and the host's
	if nested() {
		depth = 3
	}
	for _, pid := range m.Group.box().processes() {
		status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		if err == nil && isFirst(string(status), depth) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("host %s is off", m.Host.Name)
}

// isFirst reports whether a process is the first one of a process namespace and known in so many, the one that /proc belongs
// to included. status is the text of its /proc/PID/status.
func isFirst(status string, depth int) bool {
	for line := range strings.Lines(status) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			f := strings.Fields(ids)
			return len(f) == depth && f[depth-1] == "1"
		}
	}
	return false
}

// Processes lists the ids, on this machine, of everything that runs for the host.
func (m *Machine) Processes() []int { return m.Group.box().processes() }
