package lab

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/image"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/machine"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/manifest"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/network"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
)

// Config says which lab is meant.
type Config struct {
	Dir  string // state of all labs and images
	Name string
	Say  func(format string, args ...any) // progress, one line each
}

// Lab is one lab of tier N. It need not be up.
type Lab struct {
	Plan  plan.Plan
	base  string // state of all labs
	dir   string // state of this one
	group machine.Group
	say   func(string, ...any)
}

// Open finds out what is known of a lab. It changes nothing; it returns a *MissingError where no lab can be.
func Open(c Config) (*Lab, error) {
	if err := onLinux(); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, &MissingError{"a lab of tier N needs root: run it with sudo"}
	}
	p, err := plan.New(c.Name)
	if err != nil {
		return nil, err
	}
	base, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(base, ":,\\\" \t\n") {
		return nil, fmt.Errorf("state folder %q: overlay mounts cannot take spaces, quotes, commas, colons or backslashes in a path", base)
	}
	root, err := machine.Root()
	if err != nil {
		return nil, &MissingError{err.Error()}
	}
	l := &Lab{Plan: p, base: base, dir: filepath.Join(base, "labs", c.Name), group: machine.LabGroup(root, p.Cgroup()), say: c.Say}
	text, err := os.ReadFile(l.planFile())
	if errors.Is(err, os.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("state of lab %s: %w", c.Name, err)
	}
	if err := json.Unmarshal(text, &l.Plan); err != nil {
		return nil, fmt.Errorf("state of lab %s, %s: %w; delete that file, then `lab down` takes the rest away", c.Name, l.planFile(), err)
	}
	return l, nil
}

func (l *Lab) planFile() string { return filepath.Join(l.dir, "plan.json") }

// Lock keeps other commands from changing the same lab until the returned function is called, or this process ends.
func (c Config) Lock() (func(), error) {
	locks := filepath.Join(c.Dir, "locks")
	if err := os.MkdirAll(locks, 0o755); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(locks, c.Name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		c.Say("waiting for another command on lab %s", c.Name)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock: %w", err)
	}
	return func() { _ = f.Close() }, nil
}

// Build builds the host image when it is not there and returns its path.
func (l *Lab) Build(ctx context.Context) (string, error) {
	if err := ensureTools(ctx, l.say); err != nil {
		return "", err
	}
	return image.Ensure(ctx, l.images(), recipe(), image.AsRoot, l.say)
}

// recipe is that of the hosts' image on this machine.
func recipe() image.Recipe {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		release = nil // not Debian, then
	}
	return image.DefaultRecipe(image.Suite(string(release)), runtime.GOARCH)
}

// Machine is the named host of the lab.
func (l *Lab) Machine(name string) (*machine.Machine, error) {
	h, ok := l.Plan.Host(name)
	if !ok {
		if len(l.Plan.Hosts) == 0 {
			return nil, fmt.Errorf("lab %s is not up", l.Plan.Name)
		}
		return nil, fmt.Errorf("lab %s has no host %q; it has %s", l.Plan.Name, name, strings.Join(l.Plan.Names(), ", "))
	}
	keys, err := machine.LoadKeys(filepath.Join(l.dir, "keys", name), h.User+"@"+name)
	if err != nil {
		return nil, err
	}
	return &machine.Machine{Plan: l.Plan, Host: h, Dir: filepath.Join(l.dir, "hosts", name), Group: l.group.Host(name), Keys: keys}, nil
}

// Machines are the named hosts, or all.
func (l *Lab) Machines(names []string) ([]*machine.Machine, error) {
	if len(names) == 0 {
		names = l.Plan.Names()
	}
	var all []*machine.Machine
	for _, name := range names {
		m, err := l.Machine(name)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// Env describes the lab to its users.
func (l *Lab) Env() (plan.Env, error) {
	if len(l.Plan.Hosts) == 0 {
		return plan.Env{}, fmt.Errorf("lab %s is not up", l.Plan.Name)
	}
	all, err := l.Machines(nil)
	if err != nil {
		return plan.Env{}, err
	}
	keys := map[string]string{}
	for _, m := range all {
		keys[m.Host.Name] = m.Keys.HostKey
	}
	e := l.Plan.Env(TierN, l.dir, keys)
	e.Enter = network.Enter(l.Plan.Namespace())
	return e, nil
}

// newUUID makes the identity of a new host.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Snapshot writes down what a host consists of, from outside: the host does not notice.
func (l *Lab) Snapshot(ctx context.Context, name string) (manifest.Manifest, error) {
	m, err := l.Machine(name)
	if err != nil {
		return manifest.Manifest{}, err
	}
	source := manifest.Source{Host: name, Root: m.Root(), Processes: m.Processes()}
	if m.State() == machine.Frozen {
		return manifest.Manifest{}, fmt.Errorf("host %s is frozen: its systemd cannot be asked", name)
	}
	if m.State() == machine.On {
		if source.Leader, err = m.Leader(); err != nil {
			return manifest.Manifest{}, err
		}
	}
	return manifest.Collect(ctx, source)
}
