package userns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/guest"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/link"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/machine"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
)

// order is what the holder is asked for.
type order struct {
	Do       string      `json:"do"` // make, install, kill, start, reboot, freeze, thaw, status, snapshot
	Host     string      `json:"host,omitempty"`
	Spec     *guest.Spec `json:"spec,omitempty"`     // of make
	Disk     string      `json:"disk,omitempty"`     // of make: size as mount takes it
	MoaidLab []byte      `json:"moaidlab,omitempty"` // of make and install: the binary
}

// answer is what the holder says.
type answer struct {
	Error  string            `json:"error,omitempty"`
	States map[string]string `json:"states,omitempty"`
	Text   string            `json:"text,omitempty"`
}

// Descriptors that the holder is started with.
const (
	controlFD = 3
	readyFD   = 4
)

// States of a host.
const (
	on     = "on"
	off    = "off"
	frozen = "frozen"
)

// disks is where the holder has the hosts' disks. It is a place of its own that hides the machine's folder of that name from the
// lab: the state folder may be closed to the user that the machine's root is inside.
const disks = "/tmp"

// bootLimit bounds how long a host may take until its server answers.
const bootLimit = 30 * time.Second

// holder is the lab's process 1.
type holder struct {
	mu    sync.Mutex // one order at a time
	hosts map[string]*host
}

// host is one host of the lab.
type host struct {
	spec guest.Spec

	mu     sync.Mutex
	state  string
	cmd    *exec.Cmd
	ended  chan struct{} // closed when process 1 has ended
	wanted bool          // it ended because it was told to
}

// hold is the holder's whole life.
func hold() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	// The machine's /proc numbers processes as they are outside.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("moai-lab", disks, "tmpfs", unix.MS_NODEV, "mode=755,size=1m"); err != nil {
		return fmt.Errorf("a place for disks: %w", err)
	}
	if err := link.Up("lo"); err != nil {
		return err
	}
	if err := makeBridges(); err != nil {
		return err
	}
	file := os.NewFile(controlFD, "control")
	l, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	_ = file.Close()
	if _, err := syscall.Write(readyFD, []byte("ready")); err != nil {
		return err
	}
	if err := syscall.Close(readyFD); err != nil {
		return err
	}
	h := &holder{hosts: map[string]*host{}}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go h.serve(conn)
	}
}

// makeBridges makes the lab's networks, with the lab's own address in each.
func makeBridges() error {
	for _, n := range plan.Nets {
		if err := link.AddBridge(n.Bridge()); err != nil {
			return err
		}
		if err := link.SetAddress(n.Bridge(), n.Prefix()); err != nil {
			return err
		}
	}
	return nil
}

func (h *holder) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	var o order
	if err := json.NewDecoder(conn).Decode(&o); err != nil {
		return
	}
	h.mu.Lock()
	a, err := h.do(o)
	h.mu.Unlock()
	if err != nil {
		a.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(a) // who asked may be gone
}

func (h *holder) do(o order) (answer, error) {
	if o.Do == "status" {
		a := answer{States: map[string]string{}}
		for name, x := range h.hosts {
			a.States[name] = x.is()
		}
		return a, nil
	}
	if o.Do == "make" {
		return answer{}, h.make(o)
	}
	x := h.hosts[o.Host]
	if x == nil {
		return answer{}, fmt.Errorf("there is no host %s", o.Host)
	}
	switch o.Do {
	case "install":
		return answer{}, x.install(o.MoaidLab)
	case "kill":
		x.kill()
		return answer{}, nil
	case "start":
		if x.is() != off {
			return answer{}, fmt.Errorf("host %s is on already", o.Host)
		}
		return answer{}, x.start()
	case "reboot":
		return answer{}, x.reboot()
	case "freeze":
		return answer{}, x.signal(frozen, syscall.SIGSTOP)
	case "thaw":
		return answer{}, x.signal(on, syscall.SIGCONT)
	case "snapshot":
		text, err := x.snapshot()
		return answer{Text: text}, err
	}
	return answer{}, fmt.Errorf("unknown order %q", o.Do)
}

// make makes a host and starts it.
func (h *holder) make(o order) error {
	if h.hosts[o.Spec.Host] != nil {
		return fmt.Errorf("there is a host %s already", o.Spec.Host)
	}
	root := filepath.Join(disks, o.Spec.Host)
	o.Spec.Root = root
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("moai-lab", root, "tmpfs", unix.MS_NODEV, "mode=755,size="+o.Disk); err != nil {
		return fmt.Errorf("disk of size %s: %w", o.Disk, err)
	}
	x := &host{spec: *o.Spec, state: off}
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	own := filepath.Join(root, guest.Program)
	if err := os.MkdirAll(filepath.Dir(own), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(own, program, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(own), "addresses"), []byte(strings.Join(o.Spec.Addresses, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	if err := x.install(o.MoaidLab); err != nil {
		return err
	}
	if err := x.start(); err != nil {
		return err
	}
	h.hosts[o.Spec.Host] = x
	return nil
}

// install puts moaid-lab into the host when its content differs.
func (x *host) install(binary []byte) error {
	name := filepath.Join(x.spec.Root, machine.LabBinary)
	if have, err := os.ReadFile(name); err == nil && string(have) == string(binary) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", binary, 0o755); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

func (x *host) is() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.state
}

// start powers the host on and returns when its server answers.
func (x *host) start() error {
	text, err := json.Marshal(x.spec)
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe")
	cmd.Args = []string{guest.InitName + "-" + x.spec.Lab + "-" + x.spec.Host}
	cmd.Dir = "/"
	in, tell, err := os.Pipe()
	if err != nil {
		return errors.Join(err, w.Close())
	}
	defer func() { _ = tell.Close() }()
	cmd.Stdin = in
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET,
	}
	err = cmd.Start()
	_, _ = w.Close(), in.Close()
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	x.mu.Lock()
	x.cmd, x.state, x.ended, x.wanted = cmd, on, make(chan struct{}), false
	x.mu.Unlock()
	go x.watch(cmd, x.ended)
	// The host waits for its description until its cables are laid.
	for i, n := range plan.Nets {
		if err := link.AddCable(x.spec.Ports[i], n.Bridge(), n.Interface(), x.spec.MACs[i], cmd.Process.Pid); err != nil {
			x.kill()
			return err
		}
	}
	if _, err := tell.Write(text); err != nil {
		return err
	}
	if err := tell.Close(); err != nil {
		return err
	}
	if err := r.SetReadDeadline(time.Now().Add(bootLimit)); err != nil {
		return err
	}
	if _, err := r.Read(make([]byte, 16)); err != nil { // of a pipe that ended, too
		x.kill()
		return fmt.Errorf("the host ended, or did not answer, while it started: %w", err)
	}
	return nil
}

// watch waits for the end of a host, and starts it again if it wants that.
func (x *host) watch(cmd *exec.Cmd, ended chan struct{}) {
	err := cmd.Wait()
	x.mu.Lock()
	x.state = off
	again := !x.wanted
	x.mu.Unlock()
	close(ended)
	var exit *exec.ExitError
	if again && errors.As(err, &exit) && exit.ExitCode() == guest.ExitReboot {
		if err := x.start(); err != nil {
			fmt.Fprintf(os.Stderr, "%s does not come back: %v\n", x.spec.Host, err)
		}
	}
}

// kill is a power cut.
func (x *host) kill() {
	x.mu.Lock()
	x.wanted = true
	cmd, ended, state := x.cmd, x.ended, x.state
	x.mu.Unlock()
	if state == off {
		return
	}
	_ = cmd.Process.Kill() // it may have ended
	<-ended
}

func (x *host) reboot() error {
	if x.is() != on {
		return fmt.Errorf("host %s is %s", x.spec.Host, x.is())
	}
	ctx, cancel := context.WithTimeout(context.Background(), bootLimit)
	defer cancel()
	if _, err := guest.Ask(ctx, x.control(), guest.Request{Do: "end"}); err != nil {
		return err
	}
	x.kill()
	return x.start()
}

func (x *host) control() string { return filepath.Join(x.spec.Root, guest.ControlPath) }

// signal sends a signal to every process of the host.
func (x *host) signal(state string, sig syscall.Signal) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.state == off {
		return fmt.Errorf("host %s is off", x.spec.Host)
	}
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", x.cmd.Process.Pid))
	if err != nil {
		return err
	}
	all, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		return err
	}
	for _, name := range all {
		link, err := os.Readlink(name)
		if err != nil || link != own {
			continue // it ended, or is another host's
		}
		var pid int
		if _, err := fmt.Sscanf(name, "/proc/%d/", &pid); err != nil {
			return err
		}
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	x.state = state
	return nil
}

func (x *host) snapshot() (string, error) {
	switch x.is() {
	case on:
	default:
		return "", fmt.Errorf("host %s is %s: in this tier only a host that is on can be asked what it consists of", x.spec.Host, x.is())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := guest.Ask(ctx, x.control(), guest.Request{Do: "snapshot"})
	if err != nil {
		return "", err
	}
	if r.Exit != 0 {
		return "", errors.New(strings.TrimSpace(r.Stderr))
	}
	return r.Stdout, nil
}
