package lab

import (
	"context"
	"errors"
	"fmt"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/userns"
)

// TierG is the name of the tier whose hosts are namespaces with an SSH server and a service manager of the lab's own.
const TierG = "G"

func tierG() Tier {
	return Tier{
		Name: TierG, What: "namespaces with the lab's own sshd and service manager", Available: availableG,
		Open: func(c Config) (Driver, error) {
			l, err := userns.Open(c.Dir, c.Name, c.Say)
			if err != nil {
				return nil, err
			}
			return labG{Lab: l, c: c}, nil
		},
	}
}

func availableG(ctx context.Context) error {
	if err := onLinux(); err != nil {
		return err
	}
	if err := userns.Available(ctx); err != nil {
		return &MissingError{err.Error()}
	}
	return nil
}

// labG is a lab of tier G as a driver.
type labG struct {
	*userns.Lab
	c Config
}

var _ Driver = labG{}

// Build prepares nothing: hosts are made of the machine's own programs.
func (l labG) Build(context.Context) (string, error) { return "", nil }

// Up brings up the hosts.
func (l labG) Up(ctx context.Context, o UpOptions) error {
	binary, err := (&Lab{Plan: l.Plan, base: l.c.Dir, say: l.c.Say}).labBinary(ctx, o.MoaidLab)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Deadline)
	defer cancel()
	return l.Lab.Up(ctx, o.Hosts, o.Disk, binary, newUUID)
}

// Env describes the lab to its users.
func (l labG) Env() (plan.Env, error) { return l.Lab.Env(TierG) }

// Status says what each host is doing.
func (l labG) Status() ([]HostStatus, error) {
	states, err := l.States(context.Background())
	if err != nil {
		return nil, err
	}
	var list []HostStatus
	for _, h := range l.Plan.Hosts {
		if s, ok := states[h.Name]; ok {
			list = append(list, HostStatus{Host: h, State: s})
		}
	}
	return list, nil
}

// Power cuts, starts, reboots, freezes or thaws hosts.
func (l labG) Power(ctx context.Context, verb string, hosts []string) error {
	if err := l.Has(hosts); err != nil {
		return err
	}
	return l.Lab.Power(ctx, verb, hosts)
}

// Cut is not done: the hosts have one network.
func (l labG) Cut(context.Context, bool, []string, []plan.Net) error {
	return fmt.Errorf("tier %s cannot cut hosts off from each other: they share one network. freeze and kill can be done, or a lab of a better tier: %w",
		TierG, errors.ErrUnsupported)
}
