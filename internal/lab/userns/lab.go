package userns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/guest"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/machine"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/manifest"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/program"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/tree"
)

// Lab is one lab of this tier. It need not be up.
type Lab struct {
	Plan plan.Plan
	base string // state of all labs
	dir  string // state of this one
	say  func(string, ...any)
}

// Open finds out what is known of a lab whose state lies under base. It changes nothing.
func Open(base, name string, say func(string, ...any)) (*Lab, error) {
	p, err := plan.New(name)
	if err != nil {
		return nil, err
	}
	if base, err = filepath.Abs(base); err != nil {
		return nil, err
	}
	l := &Lab{Plan: p, base: base, dir: filepath.Join(base, "labs", name), say: say}
	text, err := os.ReadFile(l.planFile())
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &l.Plan)
	}
	if err != nil {
		return nil, fmt.Errorf("state of lab %s: %w; delete %s, then `lab down` takes the rest away", name, err, l.planFile())
	}
	return l, nil
}

func (l *Lab) planFile() string          { return filepath.Join(l.dir, "plan.json") }
func (l *Lab) socket() string            { return filepath.Join(l.dir, "control") }
func (l *Lab) console() string           { return filepath.Join(l.dir, "console") }
func (l *Lab) holderFile() string        { return filepath.Join(l.dir, "holder") }
func (l *Lab) keyPrefix(h string) string { return filepath.Join(l.dir, "keys", h) }

// startLimit bounds how long the holder may take until it takes orders.
const startLimit = 20 * time.Second

// Up makes the lab have the named hosts; those that are there and on are left alone, apart from a changed moaid-lab. disk is the
// size of each new host's disk. moaidLab is the host program. uuid makes the identity of a new host.
func (l *Lab) Up(ctx context.Context, names []string, disk string, moaidLab []byte, uuid func() string) error {
	var err error
	if len(names) == 0 && len(l.Plan.Hosts) == 0 {
		names = plan.DefaultHosts
	}
	pid := l.holder()
	if pid != 0 {
		// A holder that was killed ends only when all its hosts have.
		if _, err := l.order(ctx, order{Do: "status"}); err != nil {
			if err := l.end(ctx); err != nil {
				return err
			}
			pid = 0
		}
	}
	if pid == 0 { // of a lab that was cut off
		if err := l.clear(); err != nil {
			return err
		}
	}
	if l.Plan, err = l.Plan.With(names, uuid); err != nil {
		return err
	}
	if err := l.save(); err != nil {
		return err
	}
	if pid == 0 {
		if err := l.hold(ctx); err != nil {
			return fmt.Errorf("start the lab: %w", err)
		}
	}
	now, err := l.order(ctx, order{Do: "status"})
	if err != nil {
		return err
	}
	for _, h := range l.Plan.Hosts {
		if err := l.bring(ctx, h, now.States[h.Name], disk, moaidLab); err != nil {
			return fmt.Errorf("host %s: %w; the console ends:\n%s", h.Name, err, l.consoleEnd())
		}
	}
	return l.files()
}

// bring makes a host what it shall be from what it is.
func (l *Lab) bring(ctx context.Context, h plan.Host, state, disk string, moaidLab []byte) error {
	start := time.Now()
	o := order{Host: h.Name, MoaidLab: moaidLab}
	switch state {
	case frozen:
		return errors.New("it is frozen: thaw it")
	case on, off:
		o.Do = "install"
		if _, err := l.order(ctx, o); err != nil || state == on {
			return err
		}
		o.Do = "start"
	default:
		spec, err := l.spec(h)
		if err != nil {
			return err
		}
		o.Do, o.Spec, o.Disk = "make", &spec, disk
	}
	if _, err := l.order(ctx, o); err != nil {
		return err
	}
	l.say("%s is up at %s, user %s, after %.1f s", h.Name, h.Address(plan.Mgmt), h.User, time.Since(start).Seconds())
	return nil
}

// spec describes a new host.
func (l *Lab) spec(h plan.Host) (guest.Spec, error) {
	keys, err := machine.LoadKeys(l.keyPrefix(h.Name), h.User+"@"+h.Name)
	if err != nil {
		return guest.Spec{}, err
	}
	s := guest.Spec{
		Lab: l.Plan.Name, Host: h.Name, User: h.User, SSHPort: h.SSHPort(), Links: map[string]string{},
	}
	for _, n := range plan.Nets {
		s.Addresses = append(s.Addresses, h.CIDR(n))
		s.Ports, s.MACs = append(s.Ports, h.Port(n)), append(s.MACs, h.MAC(n))
	}
	files, err := machine.SeedFiles(h, keys)
	if err != nil {
		return guest.Spec{}, err
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Path, "/etc/sudoers.d/") { // sudo is the lab's own
			s.Files = append(s.Files, guest.File{Path: f.Path, Content: f.Content, Mode: uint32(f.Mode), Owned: f.Owned})
		}
	}
	for _, link := range machine.SeedLinks(h.Profile) {
		if strings.HasPrefix(link, "/usr/bin/") { // the machine's, which the host cannot change; its own comes first on PATH
			link = "/usr/local/bin/" + filepath.Base(link)
		}
		s.Links[link] = machine.LabBinary
	}
	return s, nil
}

// holderCommand is how the lab's holder is called: with the state folder, which no other lab has.
func (l *Lab) holderCommand() []string { return []string{holderName + "-" + l.Plan.Name, l.dir} }

// hold starts the holder.
func (l *Lab) hold(ctx context.Context) error {
	lc := net.ListenConfig{}
	listener, err := lc.Listen(ctx, "unix", l.socket())
	if err != nil {
		return fmt.Errorf("control socket (a path of at most 107 bytes; MOAI_LAB_DIR says where it begins): %w", err)
	}
	unixListener, ok := listener.(*net.UnixListener)
	if !ok {
		return errors.New("the control socket is no unix socket")
	}
	unixListener.SetUnlinkOnClose(false)
	control, err := unixListener.File()
	_ = unixListener.Close()
	if err != nil {
		return err
	}
	defer func() { _ = control.Close() }()
	console, err := os.OpenFile(l.console(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = console.Close() }()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	// Not bound to ctx: the lab goes on when the command that started it ends.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/proc/self/exe")
	cmd.Args = l.holderCommand()
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdout, cmd.Stderr = console, console
	cmd.ExtraFiles = []*os.File{control, w}
	cmd.SysProcAttr = attributes()
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // so that a long-lived caller keeps no zombie
	if err := r.SetReadDeadline(time.Now().Add(startLimit)); err != nil {
		return err
	}
	if n, err := r.Read(make([]byte, 16)); n == 0 {
		_ = cmd.Process.Kill()
		return fmt.Errorf("the holder did not start (%w):\n%s", err, l.consoleEnd())
	}
	born, err := program.Birth(cmd.Process.Pid)
	if err != nil {
		return err
	}
	return replace(l.holderFile(), fmt.Appendf(nil, "%d %s\n", cmd.Process.Pid, born), 0o600)
}

// holder is the process id of the lab's holder, or 0. A number that another process has now is not taken for it.
func (l *Lab) holder() int {
	text, err := os.ReadFile(l.holderFile())
	if err != nil {
		return l.stray()
	}
	f := strings.Fields(string(text))
	if len(f) != 2 {
		return 0
	}
	pid, err := strconv.Atoi(f[0])
	if err != nil {
		return 0
	}
	if born, err := program.Birth(pid); err != nil || born != f[1] {
		return 0
	}
	return pid
}

// stray looks for a holder that a command started and was killed before it wrote that down.
func (l *Lab) stray() int {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0
	}
	want := strings.Join(l.holderCommand(), "\x00") + "\x00"
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil || string(text) != want {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			return pid
		}
	}
	return 0
}

// order asks the holder.
func (l *Lab) order(ctx context.Context, o order) (answer, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", l.socket())
	if err != nil {
		return answer{}, fmt.Errorf("lab %s does not answer: %w", l.Plan.Name, err)
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := json.NewEncoder(conn).Encode(o); err != nil {
		return answer{}, err
	}
	var a answer
	if err := json.NewDecoder(conn).Decode(&a); err != nil {
		return answer{}, fmt.Errorf("lab %s: %s: no answer: %w", l.Plan.Name, o.Do, err)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// Down ends the lab, whatever state it is in.
func (l *Lab) Down(ctx context.Context) error {
	if err := l.end(ctx); err != nil {
		return err
	}
	return tree.Remove(l.dir)
}

// end ends the holder and with it every process of the lab.
func (l *Lab) end(ctx context.Context) error {
	for {
		pid := l.holder()
		if pid == 0 {
			return nil
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("end the lab's process %d: %w", pid, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the lab's process %d does not end: %w", pid, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// clear takes away what a lab left whose holder is gone: its hosts went with it.
func (l *Lab) clear() error {
	l.Plan.Hosts = nil
	var errs []error
	for _, name := range []string{l.socket(), l.holderFile(), filepath.Join(l.dir, "keys"), l.planFile()} {
		errs = append(errs, os.RemoveAll(name))
	}
	return errors.Join(errs...)
}

// Env describes the lab to its users.
func (l *Lab) Env(tier string) (plan.Env, error) {
	pid := l.holder()
	if pid == 0 || len(l.Plan.Hosts) == 0 {
		return plan.Env{}, fmt.Errorf("lab %s is not up", l.Plan.Name)
	}
	keys := map[string]string{}
	for _, h := range l.Plan.Hosts {
		k, err := machine.LoadKeys(l.keyPrefix(h.Name), h.User+"@"+h.Name)
		if err != nil {
			return plan.Env{}, err
		}
		keys[h.Name] = k.HostKey
	}
	e := l.Plan.Env(tier, l.dir, keys)
	e.Namespace = ""
	for name, h := range e.Hosts {
		h.Namespace = ""
		e.Hosts[name] = h
	}
	e.Enter = l.enter(pid)
	return e, nil
}

// enter leads a command into the lab's network. Inside, the lab's user is root by name: where the lab's state lies must be
// said. The machine's root keeps its own user namespace, in which its files are its own.
func (l *Lab) enter(pid int) []string {
	argv := []string{"env", "MOAI_LAB_DIR=" + l.base, "MOAI_LAB_NAME=" + l.Plan.Name, "nsenter", "--target=" + strconv.Itoa(pid), "--net"}
	if inside, err := os.Readlink("/proc/self/ns/user"); err == nil {
		if there, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid)); err == nil && there != inside && os.Geteuid() != 0 {
			argv = append(argv, "--user", "--preserve-credentials")
		}
	}
	return append(argv, "--")
}

// States says what each host is doing.
func (l *Lab) States(ctx context.Context) (map[string]string, error) {
	if l.holder() == 0 {
		return map[string]string{}, nil
	}
	a, err := l.order(ctx, order{Do: "status"})
	return a.States, err
}

// Power does something with every named host: kill, start, reboot, freeze or thaw.
func (l *Lab) Power(ctx context.Context, verb string, names []string) error {
	var errs []error
	for _, name := range names {
		if _, err := l.order(ctx, order{Do: verb, Host: name}); err != nil {
			errs = append(errs, fmt.Errorf("host %s: %s: %w", name, verb, err))
		}
	}
	return errors.Join(errs...)
}

// Snapshot writes down what a host consists of.
func (l *Lab) Snapshot(ctx context.Context, name string) (manifest.Manifest, error) {
	a, err := l.order(ctx, order{Do: "snapshot", Host: name})
	if err != nil {
		return manifest.Manifest{}, fmt.Errorf("host %s: %w", name, err)
	}
	var m manifest.Manifest
	err = json.Unmarshal([]byte(a.Text), &m)
	return m, err
}

func (l *Lab) save() error {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(l.dir, "keys"), 0o700); err != nil {
		return err
	}
	text, err := json.MarshalIndent(l.Plan, "", "  ")
	if err != nil {
		return err
	}
	return replace(l.planFile(), text, 0o600)
}

// files writes what SSH clients need.
func (l *Lab) files() error {
	e, err := l.Env("")
	if err != nil {
		return err
	}
	order := l.Plan.Names()
	return errors.Join(
		replace(e.KnownHosts, []byte(e.KnownHostsFile(order)), 0o600),
		replace(e.SSHConfig, []byte(e.SSHConfigFile(order)), 0o600),
	)
}

func replace(name string, content []byte, mode fs.FileMode) error {
	if err := os.WriteFile(name+".new", content, mode); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

func (l *Lab) consoleEnd() string {
	text, err := os.ReadFile(l.console())
	if err != nil {
		return err.Error()
	}
	return program.Tail(string(text), 1500)
}

// Has reports whether the plan has all of the hosts.
func (l *Lab) Has(names []string) error {
	for _, name := range names {
		if !slices.Contains(l.Plan.Names(), name) {
			return fmt.Errorf("lab %s has no host %q", l.Plan.Name, name)
		}
	}
	return nil
}
