package manifest

import (
	"cmp"
	"slices"
	"strings"
)

// parseAccounts reads a text in the form of /etc/passwd or /etc/group, without the password column.
func parseAccounts(text string) []Account {
	var list []Account
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 3 {
			continue
		}
		list = append(list, Account{Name: f[0], Entry: strings.Join(f[2:], ":")})
	}
	slices.SortFunc(list, func(a, b Account) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// parseUnits reads the table of a systemctl list command: the name is the first column, the state the given one.
func parseUnits(text string, state int) []Unit {
	var list []Unit
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > state {
			list = append(list, Unit{Name: f[0], State: f[state]})
		}
	}
	slices.SortFunc(list, func(a, b Unit) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// inside reports whether a process lives in a process namespace below ours. status is the text of its /proc/PID/status.
func inside(status string) bool {
	for line := range strings.Lines(status) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(ids)) > 1
		}
	}
	return false
}

// hostCgroup is a process's cgroup as the host itself sees it. text is its /proc/PID/cgroup; nspawn runs the host below
// a group named payload.
func hostCgroup(text string) string {
	for line := range strings.Lines(text) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		if _, in, ok := strings.Cut(path, "/payload"); ok {
			return cmp.Or(in, "/")
		}
		return path
	}
	return ""
}
