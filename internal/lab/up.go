package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/machine"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/network"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/tree"
)

// UpOptions says what Up brings up.
type UpOptions struct {
	Hosts    []string // empty: the hosts that the lab has, or plan.DefaultHosts
	Disk     string   // size of each new host's disk
	MoaidLab string   // binary to put into the hosts; empty: build it
	Deadline time.Duration
}

// Up makes the lab what was asked for: hosts that are there and on are left alone, apart from a changed moaid-lab.
// It returns when every host can be used.
func (l *Lab) Up(ctx context.Context, o UpOptions) error {
	base, err := l.Build(ctx)
	if err != nil {
		return err
	}
	names := o.Hosts
	if len(names) == 0 && len(l.Plan.Hosts) == 0 {
		names = plan.DefaultHosts
	}
	if l.Plan, err = l.Plan.With(names, newUUID); err != nil {
		return err
	}
	// The plan is on disk before anything is made by it: Down knows what there can be.
	if err := l.save(); err != nil {
		return err
	}
	binary, err := l.labBinary(ctx, o.MoaidLab)
	if err != nil {
		return err
	}
	if err := l.network(ctx); err != nil {
		return err
	}
	all, err := l.Machines(nil)
	if err != nil {
		return err
	}
	if err := l.files(); err != nil {
		return err
	}
	return each(all, func(m *machine.Machine) error {
		ctx, cancel := context.WithTimeout(ctx, o.Deadline)
		defer cancel()
		start := time.Now()
		m.Image, m.Disk = base, o.Disk
		if !m.Made() {
			if err := m.Make(ctx); err != nil {
				return err
			}
		}
		if _, err := m.Install(binary); err != nil {
			return err
		}
		return l.boot(ctx, m, start)
	})
}

// boot powers a host on, unless it is on, and waits until it can be used.
func (l *Lab) boot(ctx context.Context, m *machine.Machine, start time.Time) error {
	switch m.State() {
	case machine.On: // or booting
	case machine.Frozen:
		return fmt.Errorf("host %s is frozen: thaw it", m.Host.Name)
	case machine.Off:
		// A keeper without a host is left for a moment when a host has just powered itself off.
		if err := m.Group.Kill(ctx); err != nil {
			return err
		}
		if err := m.Start(ctx); err != nil {
			return err
		}
	}
	state, err := m.Ready(ctx)
	if err != nil {
		return err
	}
	note := ""
	if state != "running" {
		note = " (" + strings.Join(strings.Fields(state), " ") + ")"
	}
	l.say("%s is up at %s, user %s, after %.1f s%s", m.Host.Name, m.Host.Address(plan.Mgmt), m.Host.User, time.Since(start).Seconds(), note)
	return nil
}

// Start powers hosts on again, with the disks that they had.
func (l *Lab) Start(ctx context.Context, names []string) error {
	all, err := l.Machines(names)
	if err != nil {
		return err
	}
	return each(all, func(m *machine.Machine) error {
		if m.State() != machine.Off {
			return fmt.Errorf("host %s is on already", m.Host.Name)
		}
		return l.boot(ctx, m, time.Now())
	})
}

// Reboot reboots hosts from inside and waits until they can be used.
func (l *Lab) Reboot(ctx context.Context, names []string) error {
	all, err := l.Machines(names)
	if err != nil {
		return err
	}
	return each(all, func(m *machine.Machine) error {
		start := time.Now()
		if _, err := m.Reboot(ctx); err != nil {
			return err
		}
		l.say("%s is up again in %.1f s", m.Host.Name, time.Since(start).Seconds())
		return nil
	})
}

// Each does the same with every named host, at once.
func (l *Lab) Each(names []string, do func(*machine.Machine) error) error {
	all, err := l.Machines(names)
	if err != nil {
		return err
	}
	return each(all, do)
}

// Down ends everything that the lab started and takes away everything that it made, whatever state it is in.
func (l *Lab) Down(ctx context.Context) error {
	hosts := map[string]bool{}
	for _, name := range append(l.Plan.Names(), l.group.Hosts()...) {
		hosts[name] = true
	}
	if entries, err := os.ReadDir(filepath.Join(l.dir, "hosts")); err == nil {
		for _, e := range entries {
			hosts[e.Name()] = true
		}
	}
	var all []*machine.Machine
	for name := range hosts {
		all = append(all, &machine.Machine{Plan: l.Plan, Host: plan.Host{Name: name}, Dir: filepath.Join(l.dir, "hosts", name), Group: l.group.Host(name)})
	}
	errs := []error{each(all, func(m *machine.Machine) error { return m.Destroy(ctx) })}
	left, err := network.Namespaces(l.Plan)
	errs = append(errs, err)
	for _, ns := range left {
		errs = append(errs, network.Remove(ctx, ns))
	}
	network.Tidy()
	errs = append(errs, l.group.Kill(ctx), l.group.Remove(ctx))
	if err := errors.Join(errs...); err != nil {
		return err // the state stays, so that Down can be called again
	}
	return errors.Join(tree.Remove(l.dir), os.RemoveAll(filepath.Join(l.base, "bin", "moaid-lab-"+l.Plan.Name)))
}

// network makes the lab's namespace unless it is complete. Making it anew unplugs every host: they are made anew too.
func (l *Lab) network(ctx context.Context) error {
	marker := filepath.Join(l.dir, "network")
	if _, err := os.Stat(marker); err == nil && network.Exists(l.Plan.Namespace()) {
		return nil
	}
	all, err := l.Machines(nil)
	if err != nil {
		return err
	}
	if err := each(all, func(m *machine.Machine) error { return m.Destroy(ctx) }); err != nil {
		return err
	}
	if err := network.Make(ctx, l.Plan); err != nil {
		return fmt.Errorf("lab network: %w", err)
	}
	return os.WriteFile(marker, nil, 0o600)
}

func (l *Lab) save() error {
	if err := os.MkdirAll(filepath.Join(l.dir, "keys"), 0o700); err != nil {
		return fmt.Errorf("state of lab %s: %w", l.Plan.Name, err)
	}
	text, err := json.MarshalIndent(l.Plan, "", "  ")
	if err != nil {
		return err
	}
	return replace(l.planFile(), text)
}

// files writes what SSH clients need.
func (l *Lab) files() error {
	e, err := l.Env()
	if err != nil {
		return err
	}
	order := l.Plan.Names()
	return errors.Join(
		replace(e.KnownHosts, []byte(e.KnownHostsFile(order))),
		replace(e.SSHConfig, []byte(e.SSHConfigFile(order))),
	)
}

// replace writes a file so that it is never seen half.
func replace(name string, content []byte) error {
	if err := os.WriteFile(name+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// each does the same with every host, at once, and joins the errors.
func each(all []*machine.Machine, do func(*machine.Machine) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, m := range all {
		wg.Go(func() { errs[i] = do(m) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
