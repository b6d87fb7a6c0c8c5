package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/account"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/supervisor"
)

// becomeProgram waits until it may, and then becomes a program: the arguments are the mask, the folder and the program's
// own. Descriptor 3 is the gate; what is written to descriptor 4 is why it could not, and it is closed when it
// could.
func becomeProgram(args []string) int {
	const gate, status = 3, 4
	fail := func(err error) int {
		_, _ = syscall.Write(status, []byte(err.Error()))
		return 203 // as systemd says it
	}
	if len(args) < 3 {
		return 2
	}
	mask, err := strconv.Atoi(args[0])
	if err != nil {
		return fail(err)
	}
	syscall.CloseOnExec(status)
	if _, err := syscall.Read(gate, make([]byte, 1)); err != nil {
		return fail(err)
	}
	_ = syscall.Close(gate)
	syscall.Umask(mask)
	if err := os.Chdir(args[1]); err != nil {
		return fail(err)
	}
	return fail(fmt.Errorf("%s: %w", args[2], syscall.Exec(args[2], args[2:], os.Environ())))
}

// known says which of a unit's user and group the host does not have.
func known(user, group string) error {
	db, err := readAccounts()
	if err != nil {
		return err
	}
	if _, ok := db.User(user); !ok && user != "" {
		return fmt.Errorf("there is no user %s", user)
	}
	if _, ok := db.Group(group); !ok && group != "" {
		return fmt.Errorf("there is no group %s", group)
	}
	return nil
}

// process is a unit's main process.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	exit supervisor.Exit
}

// launch starts a unit's program; it runs when its cgroup file tells its unit.
func (h *server) launch(l supervisor.Launch) (supervisor.Process, error) {
	if err := known(l.User, l.Group); err != nil {
		return nil, err
	}
	dir := l.Directory
	if dir == "" {
		dir = "/"
	}
	cmd := exec.CommandContext(context.Background(), Program, append([]string{strconv.Itoa(l.UMask), dir}, l.Argv...)...)
	cmd.Args[0] = execName
	cmd.Env = l.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = time.Second // for output that children of a dead program hold open
	p := &process{cmd: cmd, done: make(chan struct{})}
	out := supervisor.NewLines(func(text string) { l.Line(p.PID(), text) })
	cmd.Stdout, cmd.Stderr = out, out
	gate, pass, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	status, said, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, gate.Close(), pass.Close())
	}
	cmd.ExtraFiles = []*os.File{gate, said}
	err = cmd.Start()
	_, _ = gate.Close(), said.Close()
	defer func() { _, _ = status.Close(), pass.Close() }()
	if err != nil {
		return nil, err
	}
	if err := h.vouch(l.Unit, p.PID()); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	_, _ = pass.Write([]byte{1})
	why, err := io.ReadAll(status)
	if err == nil && len(why) > 0 {
		err = errors.New(string(why))
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
		out.Flush()
		ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		switch {
		case ok && ws.Signaled():
			p.exit.Signal = strings.TrimPrefix(unix.SignalName(ws.Signal()), "SIG")
		case ok:
			p.exit.Status = ws.ExitStatus()
		}
	}()
	if err != nil {
		<-p.done
		return nil, err
	}
	go h.vouchForChildren(l.Unit, p)
	return p, nil
}

func (p *process) PID() int {
	if p.cmd.Process == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

func (p *process) Wait() supervisor.Exit {
	<-p.done
	return p.exit
}

func (p *process) Signal(name string, all bool) error {
	sig := unix.SignalNum("SIG" + strings.TrimPrefix(name, "SIG"))
	if sig == 0 {
		return fmt.Errorf("signal %q is none", name)
	}
	var errs []error
	if !all {
		return p.cmd.Process.Signal(sig)
	}
	for _, pid := range inSession(p.PID()) {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// inSession lists the processes of a session: a unit's main process is the first of one, and its children stay in it.
func inSession(session int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if sid, err := unix.Getsid(pid); err == nil && sid == session {
			pids = append(pids, pid)
		}
	}
	return pids
}

// vouch lays a file that names the unit over a process's cgroup file.
func (h *server) vouch(unit string, pid int) error {
	file := filepath.Join("/run/moai-lab/cgroup", unit)
	if err := os.WriteFile(file, []byte("0::"+supervisor.ControlGroup(unit)+"\n"), 0o644); err != nil {
		return err
	}
	if err := unix.Mount(file, fmt.Sprintf("/proc/%d/cgroup", pid), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("say which unit process %d is of: %w", pid, err)
	}
	return nil
}

// Children of a unit's process are looked for often while it is young, as programs start theirs early.
const (
	youth      = 15 * time.Second
	youngEvery = 4 * time.Millisecond
	oldEvery   = 250 * time.Millisecond
)

func (h *server) vouchForChildren(unit string, p *process) {
	known := map[int]bool{p.PID(): true}
	start := time.Now()
	tick := time.NewTicker(youngEvery)
	defer tick.Stop()
	young := true
	for {
		select {
		case <-p.done:
			return
		case <-tick.C:
		}
		if young && time.Since(start) > youth {
			young = false
			tick.Reset(oldEvery)
		}
		for _, pid := range inSession(p.PID()) {
			if !known[pid] {
				known[pid] = true
				_ = h.vouch(unit, pid) // it may have ended
			}
		}
	}
}

// accountsLock is held while the account database is changed.
var accountsLock sync.Mutex

func readAccounts() (account.DB, error) {
	passwd, err1 := os.ReadFile("/etc/passwd")
	group, err2 := os.ReadFile("/etc/group")
	return account.Parse(string(passwd), string(group)), errors.Join(err1, err2)
}
