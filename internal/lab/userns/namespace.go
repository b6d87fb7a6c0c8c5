package userns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/link"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
)

// rootAs is the user, outside, that is root in a lab that the machine's root makes: no account has it, so that root in a
// host is nobody outside. Anybody else's lab has its user as root.
const rootAs = 1_879_048_191

// namespaces are what a lab has of its own.
const namespaces = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS

// attributes start a process as root of new namespaces in which one user id is mapped.
func attributes() *syscall.SysProcAttr {
	uid, gid := os.Geteuid(), os.Getegid()
	if uid == 0 {
		uid, gid = rootAs, rootAs
	}
	return &syscall.SysProcAttr{
		Setsid: true, Cloneflags: namespaces,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}},
		// Without setgroups, nobody can drop a group that forbids him something; the kernel wants it so.
		GidMappingsEnableSetgroups: false,
		Credential:                 &syscall.Credential{NoSetGroups: true},
	}
}

// Available says why this machine cannot have hosts of namespaces, or nil. It tries everything that a lab does, in
// namespaces that end with the attempt.
func Available(ctx context.Context) error {
	for _, tool := range []string{"nsenter", "ssh"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("it needs %s on PATH (packages util-linux and openssh-client)", tool)
		}
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{probeName}
	cmd.SysProcAttr = attributes()
	var said bytes.Buffer
	cmd.Stderr = &said
	err := cmd.Run()
	if err == nil {
		return nil
	}
	why := strings.TrimSpace(said.String())
	if why == "" {
		why = err.Error()
	}
	return fmt.Errorf("user namespaces are not to be had here (%s)%s", why, hint(err))
}

// hint says what most often stands behind a refusal.
func hint(err error) string {
	read := func(name string) string {
		text, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(text))
	}
	switch {
	case read("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return "; AppArmor keeps them from programs without a profile: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0 allows them until the next boot"
	case read("kernel/unprivileged_userns_clone") == "0":
		return "; sudo sysctl kernel.unprivileged_userns_clone=1 allows them until the next boot"
	case read("user/max_user_namespaces") == "0" || errors.Is(err, unix.ENOSPC):
		return "; the machine allows none, or no more of them: see sysctl user.max_user_namespaces"
	}
	return "; a container or a sandbox around this shell may forbid them"
}

// probe does what the holder and a host do, and ends.
func probe() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	dir := "/tmp"
	if err := unix.Mount("probe", dir, "tmpfs", 0, "mode=755,size=1m"); err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	for _, d := range []string{"proc", "usr", "pts"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("proc", filepath.Join(dir, "proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("devpts", filepath.Join(dir, "pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	if err := unix.Mount("/usr", filepath.Join(dir, "usr"), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind /usr: %w", err)
	}
	if err := link.Up("lo"); err != nil {
		return err
	}
	if err := makeBridges(); err != nil {
		return err
	}
	return link.AddCable("probe", plan.Mgmt.Bridge(), "eth0", "02:6c:00:00:00:01", os.Getpid())
}
