package rootless

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// wantIDs is how many ids a host has: its files belong to users up to nobody, 65534.
const wantIDs = 65536

// Check returns all reasons why this user cannot make a place on this machine, or nil. It changes nothing.
func Check(ctx context.Context) error {
	if os.Geteuid() == 0 {
		return errors.New("it is for an ordinary user: root has tier N")
	}
	var errs []error
	for _, name := range []string{"unshare", "nsenter", "newuidmap", "newgidmap"} {
		if _, err := exec.LookPath(name); err != nil {
			errs = append(errs, fmt.Errorf("there is no %s on PATH (Debian: %s)", name, map[bool]string{true: "uidmap", false: "util-linux"}[strings.HasPrefix(name, "new")]))
		}
	}
	errs = append(errs, checkRanges())
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := checkNamespaces(ctx); err != nil {
		return err
	}
	return checkCgroup(ctx)
}

// checkRanges looks for the user's ranges of subordinate ids.
func checkRanges() error {
	who, err := user.Current()
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		text, err := os.ReadFile(file)
		if err != nil {
			errs = append(errs, fmt.Errorf("subordinate ids: %w", err))
			continue
		}
		if n := longestRange(string(text), who.Username, who.Uid); n < wantIDs-1 {
			errs = append(errs, fmt.Errorf("%s gives user %s a range of %d ids, and %d are needed (usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s)",
				file, who.Username, n, wantIDs, who.Username))
		}
	}
	return errors.Join(errs...)
}

// longestRange reads the text of /etc/subuid: lines of a user's name or id, the first subordinate id, and their number.
func longestRange(text, name, uid string) int {
	longest := 0
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 || f[0] != name && f[0] != uid {
			continue
		}
		if n, err := strconv.Atoi(f[2]); err == nil {
			longest = max(longest, n)
		}
	}
	return longest
}

// checkNamespaces makes such namespaces and what is mounted in them, for a moment.
func checkNamespaces(ctx context.Context) error {
	const try = "mount -t tmpfs none /run && mount -t sysfs none /sys && ip link set dev lo up"
	argv := append(append([]string{}, unshare...), "--mount", "--net", "--cgroup", "--ipc", "--uts", "--", "sh", "-c", try)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = "/"
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("user namespaces with a range of ids cannot be had (%w: %s)%s", err, strings.TrimSpace(said.String()), namespaceHint(os.ReadFile))
	}
	return nil
}

// namespaceHint names the switch that is in the way.
func namespaceHint(read func(string) ([]byte, error)) string {
	for _, s := range []struct{ file, off, hint string }{
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns is 1 (Ubuntu): sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 lifts it"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone is 0"},
		{"/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces is 0"},
	} {
		if b, err := read(s.file); err == nil && strings.TrimSpace(string(b)) == s.off {
			return "; " + s.hint
		}
	}
	return "; unshare must know --map-auto (util-linux 2.38 or later)"
}

// checkCgroup looks for a cgroup v2 subtree that the user may divide: the one in which this process is, or one that the
// user's systemd gives.
func checkCgroup(ctx context.Context) error {
	session := haveSession(ctx)
	if session == nil {
		return nil
	}
	if _, own := ownCgroup(); own != nil {
		return fmt.Errorf("there is no cgroup of one's own: %w, and %w", session, own)
	}
	return nil
}

// haveSession asks whether the user's systemd can give a scope. In it a lab outlives the terminal from which it was made.
func haveSession(ctx context.Context) error {
	if _, err := exec.LookPath("systemd-run"); err != nil {
		return errors.New("there is no systemd-run on PATH")
	}
	// It ends with a status other than 0 for everything but running: what it says counts.
	out, _ := exec.CommandContext(ctx, "systemctl", "--user", "is-system-running").CombinedOutput()
	switch state := strings.TrimSpace(string(out)); state {
	case "running", "degraded", "starting":
		return nil
	default:
		return fmt.Errorf("there is no systemd user session (%s), as a login at the console or by SSH gives one, and su does not", state)
	}
}

// ownCgroup finds the cgroup v2 group in which this process is, if the user may divide it.
func ownCgroup() (string, error) {
	dir, err := cgroupOf(os.Getpid())
	if err != nil {
		return "", err
	}
	for _, name := range []string{dir, filepath.Join(dir, "cgroup.procs")} {
		if err := unix.Access(name, unix.W_OK); err != nil {
			return "", fmt.Errorf("%s is not the user's to write (%w)", name, err)
		}
	}
	return dir, nil
}

// cgroupOf finds the folder of the cgroup v2 group of a process.
func cgroupOf(pid int) (string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return "", err
	}
	path, ok := unifiedPath(string(text))
	if !ok {
		return "", errors.New("the machine has no cgroup v2")
	}
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if unix.Statfs(root, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			return filepath.Join(root, path), nil
		}
	}
	return "", errors.New("no cgroup v2 tree at /sys/fs/cgroup or /sys/fs/cgroup/unified")
}

// unifiedPath reads the v2 group from the text of /proc/PID/cgroup.
func unifiedPath(text string) (string, bool) {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path, true
		}
	}
	return "", false
}
