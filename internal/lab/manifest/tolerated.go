package manifest

import (
	"path"
	"strings"
)

// rule is a set of differences that a host makes by being used, whoever uses it.
type rule struct {
	reason string
	kind   string
	match  []string // path.Match patterns; a last "/**" means everything at and below
}

// rules is the whole list of what may differ on a host that is left as it was found.
var rules = []rule{
	{"journal and login records", "file", []string{
		"/var/log/journal/**", "/run/log/journal/**", "/var/log/wtmp", "/var/log/btmp", "/var/log/lastlog", "/run/utmp",
	}},
	{"backups and lock of the account database", "file", []string{
		"/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/subuid-", "/etc/subgid-", "/etc/.pwd.lock",
	}},
	{"systemd's own timestamps and random seed", "file", []string{
		"/var/lib/systemd/random-seed", "/var/lib/systemd/timers/**", "/var/lib/systemd/catalog/**", "/var/.updated", "/etc/.updated",
	}},
	{"systemd's own run state", "file", []string{
		"/run/systemd/units/**", "/run/systemd/sessions/**", "/run/systemd/users/**", "/run/systemd/seats/**",
		"/run/systemd/journal/streams/**", "/run/systemd/journal/synced", "/run/systemd/inhibit/**",
	}},
	{"private folders of the system's own services", "file", []string{
		"/tmp/systemd-private-*-systemd-*.service-*/**", "/var/tmp/systemd-private-*-systemd-*.service-*/**",
		"/run/systemd/propagate/systemd-*.service/**",
	}},
	{"the system's own services that run on demand and end by themselves", "service", onDemand},
	{"the lab's own host program, which lab up replaces", "file", []string{"/usr/local/bin/moaid-lab"}},
	{"the lab's own run state", "file", []string{"/run/moai-lab/**", "/usr/local/lib/moai-lab/**"}},
	{"login sessions and their user managers", "file", []string{
		"/run/user/**", "/run/sudo/**", "/var/lib/sudo/**",
		"/run/systemd/transient/session-*.scope", "/run/systemd/transient/session-*.scope.d/**",
		"/run/systemd/transient/user-*.slice", "/run/systemd/transient/user-*.slice.d/**",
	}},
	{"login sessions and their user managers", "service", []string{"user@*.service", "user-runtime-dir@*.service"}},
	{"login sessions and their user managers", "unit file", []string{"session-*.scope", "user-*.slice"}},
}

// onDemand are services that asking a host (hostnamectl, timedatectl) or the clock starts for half a minute.
var onDemand = []string{
	"systemd-hostnamed.service", "systemd-timedated.service", "systemd-localed.service", "systemd-tmpfiles-clean.service",
}

// Tolerated returns why a difference is none, or an empty string. name is a path, a unit or what processes() makes of a
// process.
func Tolerated(kind, name string) string {
	if kind == "process" {
		if strings.Contains(name, " in /user.slice/") {
			return "login sessions and their user managers"
		}
		for _, unit := range onDemand {
			if strings.Contains(name, " in /system.slice/"+unit+": ") {
				return Tolerated("service", unit)
			}
		}
	}
	for _, r := range rules {
		if r.kind != kind {
			continue
		}
		for _, pattern := range r.match {
			if matches(pattern, name) {
				return r.reason
			}
		}
	}
	return ""
}

// matches is path.Match, with a last "/**" for everything at and below.
func matches(pattern, name string) bool {
	if top, ok := strings.CutSuffix(pattern, "/**"); ok {
		pattern = top
		depth := strings.Count(top, "/")
		parts := strings.Split(name, "/")
		if len(parts) <= depth {
			return false
		}
		name = strings.Join(parts[:depth+1], "/")
	}
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}
