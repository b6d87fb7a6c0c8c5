// Package peercred says whether a process may open a session for an engine: by
// its user, and by the systemd unit in whose cgroup it runs.
package peercred

import (
	"fmt"
	"os"
	"strings"
)

// Check reports why a process of uid and pid may not act for an engine that was
// registered with wantUID and unit. An empty unit means any process of the user.
func Check(uid, pid, wantUID int, unit string) error {
	if uid != wantUID {
		return fmt.Errorf("the process runs as uid %d, the engine is registered with uid %d", uid, wantUID)
	}
	if unit == "" {
		return nil
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return fmt.Errorf("the cgroup of process %d cannot be read: %w", pid, err)
	}
	if !InUnit(string(b), unit) {
		return fmt.Errorf("process %d does not run in unit %s", pid, unit)
	}
	return nil
}

// InUnit reports whether the text of /proc/PID/cgroup names a cgroup of the unit
// or below it. Only systemd's own hierarchy counts: the unified one, or
// name=systemd of version 1.
func InUnit(cgroup, unit string) bool {
	for line := range strings.Lines(cgroup) {
		hierarchy, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		if !ok {
			continue
		}
		controllers, path, ok := strings.Cut(rest, ":")
		if !ok || (controllers != "name=systemd" && (hierarchy != "0" || controllers != "")) {
			continue
		}
		for part := range strings.SplitSeq(path, "/") {
			if part == unit {
				return true
			}
		}
	}
	return false
}
