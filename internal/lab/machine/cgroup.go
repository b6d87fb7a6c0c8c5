package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/tree"
)

// Group is the cgroup (v2) of a lab or of one host.
type Group struct{ dir string }

// endDeadline bounds how long the kernel may take to end what a cgroup held.
const endDeadline = 20 * time.Second

// poll is the pause between two looks at a condition.
const poll = 10 * time.Millisecond

// Root finds the machine's cgroup v2 tree: the only one, or the one beside v1 hierarchies. Freezing and killing need
// no controllers, so a hybrid machine will do.
func Root() (string, error) {
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			return dir, nil
		}
	}
	return "", errors.New("no cgroup v2 tree at /sys/fs/cgroup or /sys/fs/cgroup/unified: mount one " +
		"(mount -t cgroup2 none /sys/fs/cgroup/unified)")
}

// LabGroup is the cgroup of a lab. It need not exist yet.
func LabGroup(root, name string) Group { return Group{filepath.Join(root, name)} }

// Host is the group's child of that name. A lab's children are its hosts; a host's are its keeper and its box, side by side.
func (g Group) Host(name string) Group { return Group{filepath.Join(g.dir, name)} }

// Path is the group's folder.
func (g Group) Path() string { return g.dir }

func (g Group) keeper() Group { return Group{filepath.Join(g.dir, "keeper")} }
func (g Group) box() Group    { return Group{filepath.Join(g.dir, "box")} }

// make makes the host's cgroups and hands the usual controllers down, where the machine has them in v2.
func (g Group) make() error {
	for _, dir := range []string{g.keeper().dir, g.box().dir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	for _, dir := range []string{filepath.Dir(g.dir), g.dir} {
		have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
		for _, c := range strings.Fields(string(have)) {
			if slices.Contains([]string{"cpu", "io", "memory", "pids"}, c) {
				// Refused where the machine keeps a controller to itself: the host then runs without limits.
				_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0o600)
			}
		}
	}
	return nil
}

// Hosts lists the names of the group's children: of a lab, the hosts which have a cgroup.
func (g Group) Hosts() []string {
	var names []string
	entries, _ := os.ReadDir(g.dir) // no group: no children
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// populated reports whether any process lives in the group or below it.
func (g Group) populated() bool {
	events, err := os.ReadFile(filepath.Join(g.dir, "cgroup.events"))
	return err == nil && strings.Contains(string(events), "populated 1")
}

// freeze stops (or resumes) every process of the group.
func (g Group) freeze(on bool) error {
	value := "0"
	if on {
		value = "1"
	}
	if err := os.WriteFile(filepath.Join(g.dir, "cgroup.freeze"), []byte(value), 0o600); err != nil {
		return fmt.Errorf("freezer: %w", err)
	}
	return nil
}

func (g Group) frozen() bool {
	b, err := os.ReadFile(filepath.Join(g.dir, "cgroup.freeze"))
	return err == nil && strings.TrimSpace(string(b)) == "1"
}

// Kill ends every process of the group at once, frozen ones too, and waits until none is left. Killing nspawn alone
// would leave the host's systemd running.
func (g Group) Kill(ctx context.Context) error {
	if _, err := os.Stat(g.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0o600); err != nil {
		return fmt.Errorf("kill cgroup %s (Linux 5.14 or later is needed): %w", g.dir, err)
	}
	ctx, cancel := context.WithTimeout(ctx, endDeadline)
	defer cancel()
	for g.populated() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("cgroup %s: processes %v do not end: %w", g.dir, g.processes(), ctx.Err())
		case <-time.After(poll):
		}
	}
	return nil
}

// Remove removes the group with all groups below it. It must hold no process.
func (g Group) Remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endDeadline)
	defer cancel()
	for {
		err := tree.RemoveEmpty(g.dir)
		if err == nil {
			break
		}
		select { // a process that has just ended is counted for a moment
		case <-ctx.Done():
			return fmt.Errorf("remove cgroup: %w", err)
		case <-time.After(poll):
		}
	}
	// On a hybrid machine nspawn mirrors its cgroup in the v1 hierarchy named systemd.
	mirror := filepath.Join("/sys/fs/cgroup/systemd", strings.TrimPrefix(strings.TrimPrefix(g.dir, "/sys/fs/cgroup"), "/unified"))
	if mirror != g.dir {
		_ = tree.RemoveEmpty(mirror)
	}
	return nil
}

// processes lists the ids of all processes in the group and below it. Groups come and go: what cannot be read has none.
func (g Group) processes() []int {
	var pids []int
	text, _ := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	for _, f := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(f); err == nil {
			pids = append(pids, pid)
		}
	}
	for _, name := range g.Hosts() {
		pids = append(pids, g.Host(name).processes()...)
	}
	return pids
}
