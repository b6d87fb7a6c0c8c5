package rootless

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/program"
)

//go:embed holder.sh
var holderScript string

// unshare starts a command as root of a new user namespace with the user's range of ids.
var unshare = []string{"unshare", "--user", "--map-root-user", "--map-auto"}

// AsRoot returns args run as root of a user namespace with the user's range of ids, but with the machine's network: for what
// is done to files of the range.
func AsRoot(args ...string) []string {
	return slices.Concat(unshare, []string{"--mount", "--"}, args)
}

// scopeVariable tells a program that it was put into a scope of its own already.
const scopeVariable = "MOAI_LAB_SCOPE"

// Make makes the place unless it is there. It returns when it can be entered.
func (p Place) Make(ctx context.Context) error {
	if ok, err := p.Exists(); err != nil || ok {
		return err
	}
	if err := p.End(ctx); err != nil { // what a holder that died left
		return err
	}
	argv := slices.Concat(unshare, []string{"--mount", "--net", "--cgroup", "--ipc", "--uts", "--", "sh", "-c", holderScript, "moai-lab-" + p.Name})
	if haveSession(ctx) == nil {
		argv = slices.Concat(scope("-p", "Delegate=yes"), argv)
	} else {
		own, err := ownCgroup()
		if err != nil {
			return err
		}
		dir := filepath.Join(own, "moai-lab-"+p.Name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
		argv = slices.Concat([]string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, dir}, argv)
	}
	// Not bound to ctx: the holder stays when the command that started it ends.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), argv[0], argv[1:]...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, found := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if !found {
		err = errors.Join(err, cmd.Wait())
		return fmt.Errorf("make namespaces for a lab: %w: %s", err, strings.TrimSpace(said.String()))
	}
	go func() { _ = cmd.Wait() }() // so that a long-lived caller keeps no zombie
	var r record
	if r.Holder, err = strconv.Atoi(pid); err != nil {
		return fmt.Errorf("holder: %w", err)
	}
	if r.Started, err = program.Birth(r.Holder); err != nil {
		return fmt.Errorf("holder %d: %w", r.Holder, err)
	}
	if r.Cgroup, err = placeOf(r.Holder); err != nil {
		return err
	}
	return p.write(r)
}

// placeOf finds the cgroup that a holder is the root of: the parent of the leaf in which it lives.
func placeOf(holder int) (string, error) {
	leaf, err := cgroupOf(holder)
	if err != nil {
		return "", err
	}
	return filepath.Dir(leaf), nil
}

func (p Place) write(r record) error {
	if err := os.MkdirAll(filepath.Dir(p.File), 0o755); err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.File+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(p.File+".new", p.File)
}

// scope is the start of a command that runs in a scope of the user's systemd.
func scope(more ...string) []string {
	return slices.Concat([]string{"systemd-run", "--user", "--scope", "--quiet", "--collect"}, more, []string{"--"})
}

// Enter returns what is put before a command to run it in the place, as root there, in the folder dir. Where the kernel
// does not let this user's processes move from this one's cgroup to the place's, it returns what runs a command in a scope
// of the user's systemd instead: from there Enter, asked again, leads on.
func (p Place) Enter(ctx context.Context, dir string) ([]string, error) {
	r, ok, err := p.read()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("lab %s is not up", p.Name)
	}
	visitors := filepath.Join(r.Cgroup, "visitors", "cgroup.procs")
	// What may be moved is known only by trying.
	if out, err := exec.CommandContext(ctx, "sh", "-c", `echo $$ >"$0"`, visitors).CombinedOutput(); err != nil {
		if os.Getenv(scopeVariable) != "" {
			return nil, fmt.Errorf("join the lab's cgroup: %w: %s", err, strings.TrimSpace(string(out)))
		}
		return slices.Concat([]string{"env", scopeVariable + "=1"}, scope()), nil
	}
	// nsenter leaves its caller's folder, which is of another mount namespace.
	return []string{
		"sh", "-c", `echo $$ >"$0" && exec "$@"`, visitors,
		"nsenter", "--target=" + strconv.Itoa(r.Holder), "--user", "--mount", "--net", "--cgroup", "--ipc", "--uts", "--",
		"sh", "-c", `cd "$0" && exec "$@"`, dir,
	}, nil
}
