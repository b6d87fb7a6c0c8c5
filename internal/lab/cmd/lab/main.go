// Command lab brings up local Linux hosts to try the provider on: `lab help` lists what it can do.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/lab"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/machine"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/network"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
)

const usage = `usage: lab COMMAND

  build                       build the host image (once)
  up [--hosts A,B] [--disk SIZE] [--moaid-lab FILE]
                              bring up hosts: gateway, h100-N, mi300x-N (default gateway,h100-0,mi300x-0)
  down                        end everything that the lab started, and nothing else
  status                      what runs
  env [--json]                addresses, users, keys: shell variables, or one JSON object
  ssh HOST [CMD...]           log in to a host as its user
  exec CMD...                 run a command in the lab's network namespace, from which the hosts can be reached
  kill HOST...                power cut; the disk stays          start HOST...   power on again
  reboot HOST...              clean reboot from inside
  freeze HOST... thaw HOST... stop and resume every process of a host
  partition [--net N] A B...  drop packets between every two of the hosts (one host: between it and everything)
  heal [--net N] A B...       take that back; N is mgmt, fabric or all
  snapshot HOST               write what the host consists of to standard output, as JSON
  diff [--all] A.json B.json  compare two snapshots; ends with 1 if they differ

MOAI_LAB_DIR (default /var/tmp/moai-lab) holds images and state, MOAI_LAB_NAME (default moai) tells labs apart.
Ends with 3 when this machine lacks something that a lab needs.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	var missing *lab.MissingError
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.Is(err, errDiffer):
		os.Exit(1)
	case errors.As(err, &missing):
		say("%v", err)
		os.Exit(3)
	case errors.Is(err, errUsage):
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	default:
		say("%v", err)
		os.Exit(1)
	}
}

var (
	errUsage  = errors.New("usage")
	errDiffer = errors.New("the snapshots differ")
)

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "lab: "+format+"\n", args...) }

// getenv returns an environment variable or its default.
func getenv(key, fallback string) string {
	if v := os.Getenv(key); v != "" {
		return v
	}
	return fallback
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	verb, args := args[0], args[1:]
	switch verb {
	case "help", "-h", "--help":
		fmt.Print(usage)
		return nil
	case "diff":
		return diff(args)
	}
	l, err := lab.Open(lab.Config{Dir: getenv("MOAI_LAB_DIR", "/var/tmp/moai-lab"), Name: getenv("MOAI_LAB_NAME", "moai"), Say: say})
	if err != nil {
		return err
	}
	switch verb {
	case "status":
		return status(l)
	case "env":
		return env(l, args)
	case "ssh":
		return sshTo(l, args)
	case "exec":
		if len(args) == 0 {
			return errUsage
		}
		if !network.Exists(l.Plan.Namespace()) {
			return fmt.Errorf("lab %s is not up", l.Plan.Name)
		}
		return become(network.Enter(l.Plan.Namespace(), args...))
	case "snapshot":
		return snapshot(ctx, l, args)
	}
	unlock, err := l.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	// What was read before the lock may be old.
	if l, err = lab.Open(lab.Config{Dir: getenv("MOAI_LAB_DIR", "/var/tmp/moai-lab"), Name: getenv("MOAI_LAB_NAME", "moai"), Say: say}); err != nil {
		return err
	}
	return change(ctx, l, verb, args)
}

// change runs the commands that change the lab; the lab is locked.
func change(ctx context.Context, l *lab.Lab, verb string, args []string) error {
	start := time.Now()
	switch verb {
	case "build":
		path, err := l.Build(ctx)
		if err == nil {
			say("image %s (%.1f s)", path, time.Since(start).Seconds())
		}
		return err
	case "up":
		return up(ctx, l, args)
	case "down":
		err := l.Down(ctx)
		if err == nil {
			say("lab %s is down (%.1f s)", l.Plan.Name, time.Since(start).Seconds())
		}
		return err
	case "partition", "heal":
		return partition(ctx, l, verb, args)
	}
	if len(args) == 0 {
		return errUsage
	}
	ctx, cancel := context.WithTimeout(ctx, bootDeadline)
	defer cancel()
	switch verb {
	case "start":
		return l.Start(ctx, args)
	case "reboot":
		return l.Reboot(ctx, args)
	case "kill":
		return l.Each(args, func(m *machine.Machine) error { return m.Cut(ctx) })
	case "freeze":
		return l.Each(args, (*machine.Machine).Freeze)
	case "thaw":
		return l.Each(args, (*machine.Machine).Thaw)
	}
	return errUsage
}

// bootDeadline bounds one boot; two seconds are usual.
const bootDeadline = 2 * time.Minute

func up(ctx context.Context, l *lab.Lab, args []string) error {
	start := time.Now()
	f := flag.NewFlagSet("up", flag.ContinueOnError)
	hosts := f.String("hosts", "", "hosts, separated by commas")
	disk := f.String("disk", "1g", "size of each host's disk")
	binary := f.String("moaid-lab", "", "moaid-lab binary for the hosts (default: build it)")
	if err := f.Parse(args); err != nil || f.NArg() > 0 {
		return errUsage
	}
	o := lab.UpOptions{Disk: *disk, MoaidLab: *binary, Deadline: bootDeadline}
	if *hosts != "" {
		o.Hosts = strings.Split(*hosts, ",")
	}
	if err := l.Up(ctx, o); err != nil {
		return err
	}
	say("lab %s is up, tier %s (%.1f s)", l.Plan.Name, l.Tier, time.Since(start).Seconds())
	return nil
}

func partition(ctx context.Context, l *lab.Lab, verb string, args []string) error {
	f := flag.NewFlagSet(verb, flag.ContinueOnError)
	net := f.String("net", "all", "mgmt, fabric or all")
	if err := f.Parse(args); err != nil || f.NArg() == 0 {
		return errUsage
	}
	nets := plan.Nets
	switch *net {
	case "all":
	case "mgmt":
		nets = []plan.Net{plan.Mgmt}
	case "fabric":
		nets = []plan.Net{plan.Fabric}
	default:
		return errUsage
	}
	all, err := l.Machines(f.Args())
	if err != nil {
		return err
	}
	var hosts []plan.Host
	for _, m := range all {
		hosts = append(hosts, m.Host)
	}
	if verb == "heal" {
		return network.Heal(ctx, l.Plan, hosts, nets)
	}
	return network.Cut(ctx, l.Plan, hosts, nets)
}

func status(l *lab.Lab) error {
	all, err := l.Machines(nil)
	if err != nil {
		return err
	}
	for _, m := range all {
		fmt.Printf("%-12s %-7s %-11s %-11s %-8s %s\n", m.Host.Name, m.State(), m.Host.Address(plan.Mgmt), m.Host.Address(plan.Fabric),
			m.Host.User, m.Host.Profile)
	}
	if len(all) == 0 {
		fmt.Printf("lab %s is not up\n", l.Plan.Name)
	}
	return nil
}

func env(l *lab.Lab, args []string) error {
	f := flag.NewFlagSet("env", flag.ContinueOnError)
	asJSON := f.Bool("json", false, "one JSON object")
	if err := f.Parse(args); err != nil || f.NArg() > 0 {
		return errUsage
	}
	e, err := l.Env()
	if err != nil {
		return err
	}
	if !*asJSON {
		fmt.Print(e.Shell(l.Plan.Names()))
		return nil
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(e)
}

func sshTo(l *lab.Lab, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	if _, err := l.Machine(args[0]); err != nil {
		return err
	}
	e, err := l.Env()
	if err != nil {
		return err
	}
	return become(network.Enter(l.Plan.Namespace(), append([]string{"ssh", "-F", e.SSHConfig, args[0]}, args[1:]...)...))
}

// become replaces this process: signals, the terminal and the exit status are then the command's own.
func become(args []string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	err = syscall.Exec(path, args, os.Environ()) //nolint:gosec // running what the user names is what `lab exec` is for
	return fmt.Errorf("%s: %w", path, err)
}
