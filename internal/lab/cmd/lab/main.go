// Command lab brings up local Linux hosts to try the provider on: `lab help` lists what it can do.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/lab"
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
  exec CMD...                 run a command where the hosts can be reached
  kill HOST...                power cut; the disk stays          start HOST...   power on again
  reboot HOST...              clean reboot from inside
  freeze HOST... thaw HOST... stop and resume every process of a host
  partition [--net N] A B...  drop packets between every two of the hosts (one host: between it and everything)
  heal [--net N] A B...       take that back; N is mgmt, fabric or all
  snapshot HOST               write what the host consists of to standard output, as JSON
  diff [--all] A.json B.json  compare two snapshots; ends with 1 if they differ

MOAI_LAB_DIR (default /var/tmp/moai-lab, with -UID for other users than root) holds images and state, MOAI_LAB_NAME
(default moai) tells labs apart, MOAI_LAB_TIER names the way to make hosts instead of the best that this machine can do.
Ends with 3 when this machine lacks something that a lab needs.
`

func main() {
	lab.Main(os.Args)
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
	c := lab.Config{Dir: lab.Dir(), Name: getenv("MOAI_LAB_NAME", "moai"), Say: say}
	switch verb {
	case "status", "env", "ssh", "exec", "snapshot":
		l, _, err := open(ctx, c, verb)
		if err != nil {
			return err
		}
		return look(ctx, l, c.Name, verb, args)
	}
	if verb == "down" {
		if done, err := downElsewhere(ctx, c); done || err != nil {
			return err
		}
	}
	unlock, err := c.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	l, choice, err := open(ctx, c, verb)
	if err != nil {
		return err
	}
	if verb == "up" || verb == "build" {
		say("%v", choice)
	}
	if verb == "up" {
		if err := c.Record(choice.Tier); err != nil {
			return err
		}
	}
	return change(ctx, l, c.Name, verb, args)
}

// open opens the lab as what it is, or as what it would be. It does not return where the word is one for this program in
// another place.
func open(ctx context.Context, c lab.Config, verb string) (lab.Driver, lab.Choice, error) {
	choice, err := lab.Choose(ctx, c)
	if err != nil {
		return nil, choice, err
	}
	if choice.Enter != nil {
		enter, err := choice.Enter(ctx, c, verb)
		if err != nil {
			return nil, choice, err
		}
		if len(enter) > 0 {
			argv, err := again(enter)
			if err != nil {
				return nil, choice, err
			}
			return nil, choice, become(argv)
		}
	}
	l, err := choice.Open(c)
	return l, choice, err
}

// again is this program with its arguments, behind what leads to another place.
func again(enter []string) ([]string, error) {
	self, err := os.Executable()
	return slices.Concat(enter, []string{self}, os.Args[1:]), err
}

// downElsewhere ends a lab whose hosts are in another place, and then the place. It reports whether the lab was such a one.
func downElsewhere(ctx context.Context, c lab.Config) (bool, error) {
	choice, err := lab.Choose(ctx, c)
	if err != nil || choice.Leave == nil {
		return false, err
	}
	enter, err := choice.Enter(ctx, c, "down")
	switch {
	case errors.Is(err, lab.ErrGone):
	case err != nil:
		return false, err
	case len(enter) == 0: // this is the place
		return false, nil
	default:
		argv, err := again(enter)
		if err != nil {
			return false, err
		}
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		if err := cmd.Run(); err != nil {
			return true, err
		}
	}
	unlock, err := c.Lock()
	if err != nil {
		return true, err
	}
	defer unlock()
	return true, choice.Leave(ctx, c)
}

// look runs the commands that change nothing of the lab.
func look(ctx context.Context, l lab.Driver, name, verb string, args []string) error {
	switch verb {
	case "status":
		return status(l, name)
	case "env":
		return env(l, args)
	case "snapshot":
		return snapshot(ctx, l, args)
	}
	if len(args) == 0 {
		return errUsage
	}
	e, err := l.Env()
	if err != nil {
		return err
	}
	enter := e.Enter
	if inside, ok := l.(interface{ Here() []string }); ok { // Enter leads to this program, which is already where it leads to
		enter = inside.Here()
	}
	if verb == "exec" {
		return become(slices.Concat(enter, args))
	}
	if _, ok := e.Hosts[args[0]]; !ok {
		return fmt.Errorf("lab %s has no host %q; it has %s", name, args[0], strings.Join(slices.Sorted(maps.Keys(e.Hosts)), ", "))
	}
	return become(slices.Concat(enter, []string{"ssh", "-F", e.SSHConfig}, args))
}

// change runs the commands that change the lab; the lab is locked.
func change(ctx context.Context, l lab.Driver, name, verb string, args []string) error {
	start := time.Now()
	switch verb {
	case "build":
		path, err := l.Build(ctx)
		if err == nil && path != "" {
			say("image %s (%.1f s)", path, time.Since(start).Seconds())
		}
		return err
	case "up":
		return up(ctx, l, name, args)
	case "down":
		err := l.Down(ctx)
		if err == nil {
			say("lab %s is down (%.1f s)", name, time.Since(start).Seconds())
		}
		return err
	case "partition", "heal":
		return partition(ctx, l, verb, args)
	}
	if !slices.Contains(lab.PowerVerbs, verb) || len(args) == 0 {
		return errUsage
	}
	ctx, cancel := context.WithTimeout(ctx, bootDeadline)
	defer cancel()
	return l.Power(ctx, verb, args)
}

// bootDeadline bounds one boot; two seconds are usual.
const bootDeadline = 2 * time.Minute

func up(ctx context.Context, l lab.Driver, name string, args []string) error {
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
	say("lab %s is up (%.1f s)", name, time.Since(start).Seconds())
	return nil
}

func partition(ctx context.Context, l lab.Driver, verb string, args []string) error {
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
	return l.Cut(ctx, verb == "heal", f.Args(), nets)
}

func status(l lab.Driver, name string) error {
	all, err := l.Status()
	if err != nil {
		return err
	}
	for _, s := range all {
		fmt.Printf("%-12s %-7s %-11s %-11s %-8s %s\n", s.Host.Name, s.State, s.Host.Address(plan.Mgmt), s.Host.Address(plan.Fabric),
			s.Host.User, s.Host.Profile)
	}
	if len(all) == 0 {
		fmt.Printf("lab %s is not up\n", name)
	}
	return nil
}

func env(l lab.Driver, args []string) error {
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
		fmt.Print(e.Shell(slices.Sorted(maps.Keys(e.Hosts))))
		return nil
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(e)
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
