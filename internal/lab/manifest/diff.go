package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Change is one thing that differs between two manifests.
type Change struct {
	Kind   string // file, user, group, unit file, service, process
	Name   string
	Before string // empty: it was not there
	After  string // empty: it is gone
	Reason string // why the difference is tolerated; empty: it is not
}

// String is the change as one line: + added, - removed, ~ changed.
func (c Change) String() string {
	switch {
	case c.Before == "":
		return fmt.Sprintf("+ %s %s: %s", c.Kind, c.Name, c.After)
	case c.After == "":
		return fmt.Sprintf("- %s %s: %s", c.Kind, c.Name, c.Before)
	}
	return fmt.Sprintf("~ %s %s: %s -> %s", c.Kind, c.Name, c.Before, c.After)
}

// Diff compares two manifests of a host. Changes are sorted by kind and name; tolerated ones carry their reason.
// When the host was off for one of them, only what lies on its disk is compared.
func Diff(before, after Manifest) []Change {
	var all []Change
	add := func(kind string, a, b map[string]string) {
		names := map[string]bool{}
		for n := range a {
			names[n] = true
		}
		for n := range b {
			names[n] = true
		}
		for n := range names {
			if a[n] != b[n] {
				all = append(all, Change{Kind: kind, Name: n, Before: a[n], After: b[n]})
			}
		}
	}
	powered := before.Powered && after.Powered
	add("file", files(before, powered), files(after, powered))
	add("user", accounts(before.Users), accounts(after.Users))
	add("group", accounts(before.Groups), accounts(after.Groups))
	if powered {
		add("unit file", units(before.UnitFiles), units(after.UnitFiles))
		add("service", units(before.Services), units(after.Services))
		add("process", processes(before), processes(after))
	}
	for i := range all {
		all[i].Reason = Tolerated(all[i].Kind, all[i].Name)
	}
	slices.SortFunc(all, func(x, y Change) int { return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Name, y.Name)) })
	return all
}

// volatile reports whether a path lies in memory while the host is on.
func volatile(path string) bool {
	for _, top := range []string{"/run", "/tmp", "/dev"} {
		if path == top || strings.HasPrefix(path, top+"/") {
			return true
		}
	}
	return false
}

func files(m Manifest, powered bool) map[string]string {
	out := map[string]string{}
	for _, f := range m.Files {
		if !powered && volatile(f.Path) {
			continue
		}
		text := fmt.Sprintf("%s %s %d:%d", f.Type, f.Mode, f.UID, f.GID)
		switch {
		case f.SHA256 != "":
			text += " sha256:" + f.SHA256[:min(12, len(f.SHA256))]
		case f.Target != "":
			text += " -> " + f.Target
		}
		out[f.Path] = text
	}
	return out
}

func accounts(list []Account) map[string]string {
	out := map[string]string{}
	for _, a := range list {
		out[a.Name] = a.Entry
	}
	return out
}

func units(list []Unit) map[string]string {
	out := map[string]string{}
	for _, u := range list {
		out[u.Name] = u.State
	}
	return out
}

func processes(m Manifest) map[string]string {
	out := map[string]string{}
	for _, p := range m.Processes {
		name := fmt.Sprintf("%s (%s) in %s: %s", p.Command, p.Exe, p.Cgroup, strings.Join(p.Args, " "))
		out[name] = fmt.Sprintf("%d running", p.Count)
	}
	return out
}
