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
// name=systemd of version 1. The unit must be the system manager's own: below
// another unit (a user's manager, a delegated cgroup) names are the choice of
// whoever runs there.
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
		if managed(path) == unit {
			return true
		}
	}
	return false
}

// managed gives the unit of the system manager in whose cgroup path lies: what
// comes first after the slices. Before them may be where a container's system
// begins.
func managed(path string) string {
	inSlice := false
	for part := range strings.SplitSeq(path, "/") {
		switch {
		case strings.HasSuffix(part, ".slice"):
			inSlice = true
		case inSlice, strings.HasSuffix(part, ".service"), strings.HasSuffix(part, ".scope"):
			return part
		}
	}
	return ""
}
