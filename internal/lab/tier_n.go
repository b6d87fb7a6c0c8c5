package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/machine"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/network"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
)

// TierN is the name of the tier that makes hosts with systemd-nspawn, as root: real systemd, real sshd, their own addresses.
const TierN = "N"

func tierN() Tier {
	return Tier{
		Name: TierN, What: "systemd-nspawn as root, with real systemd and sshd", Available: availableN,
		Open: func(c Config) (Driver, error) {
			l, err := Open(c)
			if err != nil {
				return nil, err // not l: a nil *Lab in an interface is not nil
			}
			return l, nil
		},
	}
}

var _ Driver = (*Lab)(nil)

func availableN(context.Context) error {
	if err := onLinux(); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return &MissingError{"it needs root (systemd-nspawn, network namespaces, mounts)"}
	}
	missing := missingPackages(lookup)
	if _, err := exec.LookPath("apt-get"); len(missing) > 0 && err != nil {
		return &MissingError{fmt.Sprintf("it needs the programs of these Debian packages: %s; there is no apt-get here to install them with",
			strings.Join(missing, " "))}
	}
	if _, err := machine.Root(); err != nil {
		return &MissingError{err.Error()}
	}
	return nil
}

// Status says what each host is doing.
func (l *Lab) Status() ([]HostStatus, error) {
	all, err := l.Machines(nil)
	if err != nil {
		return nil, err
	}
	var list []HostStatus
	for _, m := range all {
		list = append(list, HostStatus{Host: m.Host, State: string(m.State())})
	}
	return list, nil
}

// Power cuts, starts, reboots, freezes or thaws hosts.
func (l *Lab) Power(ctx context.Context, verb string, names []string) error {
	switch verb {
	case "start":
		return l.Start(ctx, names)
	case "reboot":
		return l.Reboot(ctx, names)
	case "kill":
		return l.Each(names, func(m *machine.Machine) error { return m.Cut(ctx) })
	case "freeze":
		return l.Each(names, (*machine.Machine).Freeze)
	case "thaw":
		return l.Each(names, (*machine.Machine).Thaw)
	}
	return fmt.Errorf("%q is none of %s", verb, strings.Join(PowerVerbs, ", "))
}

// Cut drops packets between the hosts, or takes that back.
func (l *Lab) Cut(ctx context.Context, heal bool, names []string, nets []plan.Net) error {
	all, err := l.Machines(names)
	if err != nil {
		return err
	}
	var hosts []plan.Host
	for _, m := range all {
		hosts = append(hosts, m.Host)
	}
	if heal {
		return network.Heal(ctx, l.Plan, hosts, nets)
	}
	return network.Cut(ctx, l.Plan, hosts, nets)
}
