package manifest

import (
	"slices"
	"strings"
	"testing"
)

func base() Manifest {
	return Manifest{
		Host: "h", Powered: true,
		Files: []File{
			{Path: "/etc/passwd", Type: "file", Mode: "0644", SHA256: "aaaaaaaaaaaaaaaa"},
			{Path: "/opt", Type: "dir", Mode: "0755"},
			{Path: "/run/lock", Type: "dir", Mode: "1777"},
			{Path: "/usr/bin/x", Type: "link", Mode: "0777", Target: "/bin/y"},
		},
		Users:     []Account{{"root", "0:0:root:/root:/bin/bash"}},
		UnitFiles: []Unit{{"ssh.service", "enabled"}},
		Services:  []Unit{{"ssh.service", "active"}},
		Processes: []Process{{"sshd", "/usr/sbin/sshd", []string{"sshd", "-D"}, "/system.slice/ssh.service", 1}},
	}
}

func TestDiff(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Manifest)
		want   []string
	}{
		"same":         {func(*Manifest) {}, nil},
		"content":      {func(m *Manifest) { m.Files[0].SHA256 = "bbbbbbbbbbbbbbbb" }, []string{"~ file /etc/passwd: file 0644 0:0 sha256:aaaaaaaaaaaa -> file 0644 0:0 sha256:bbbbbbbbbbbb"}},
		"mode":         {func(m *Manifest) { m.Files[1].Mode = "0700" }, []string{"~ file /opt: dir 0755 0:0 -> dir 0700 0:0"}},
		"owner":        {func(m *Manifest) { m.Files[1].UID = 999 }, []string{"~ file /opt: dir 0755 0:0 -> dir 0755 999:0"}},
		"link":         {func(m *Manifest) { m.Files[3].Target = "/z" }, []string{"~ file /usr/bin/x: link 0777 0:0 -> /bin/y -> link 0777 0:0 -> /z"}},
		"new file":     {func(m *Manifest) { m.Files = append(m.Files, File{Path: "/opt/moai", Type: "dir", Mode: "0755"}) }, []string{"+ file /opt/moai: dir 0755 0:0"}},
		"gone":         {func(m *Manifest) { m.Files = m.Files[:3] }, []string{"- file /usr/bin/x: link 0777 0:0 -> /bin/y"}},
		"user":         {func(m *Manifest) { m.Users = append(m.Users, Account{"moai", "999:997::/:/x"}) }, []string{"+ user moai: 999:997::/:/x"}},
		"unit":         {func(m *Manifest) { m.UnitFiles[0].State = "disabled" }, []string{"~ unit file ssh.service: enabled -> disabled"}},
		"failed":       {func(m *Manifest) { m.Services[0].State = "failed" }, []string{"~ service ssh.service: active -> failed"}},
		"process":      {func(m *Manifest) { m.Processes[0].Count = 2 }, []string{"~ process sshd (/usr/sbin/sshd) in /system.slice/ssh.service: sshd -D: 1 running -> 2 running"}},
		"off, in /run": {func(m *Manifest) { m.Powered, m.Files, m.Processes = false, m.Files[:2], nil }, []string{"- file /usr/bin/x: link 0777 0:0 -> /bin/y"}},
		"tolerated":    {func(m *Manifest) { m.Files = append(m.Files, File{Path: "/var/log/journal/1/x.journal", Type: "file"}) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			after := base()
			c.change(&after)
			var got []string
			for _, change := range Diff(base(), after) {
				if change.Reason == "" {
					got = append(got, change.String())
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestTolerated pins the list from both sides: what a used host changes by itself, and what looks like it but is ours.
func TestTolerated(t *testing.T) {
	for name, want := range map[string]bool{
		"/var/log/journal/abc/system.journal": true,
		"/var/log/journal":                    true,
		"/var/log/moai.log":                   false,
		"/etc/passwd-":                        true,
		"/etc/passwd":                         false,
		"/etc/.pwd.lock":                      true,
		"/tmp/systemd-private-0a1b-systemd-logind.service-Xy12Z":       true,
		"/tmp/systemd-private-0a1b-systemd-logind.service-Xy12Z/tmp/f": true,
		"/tmp/systemd-private-0a1b-moai-kvd.service-Xy12Z/tmp":         false,
		"/run/systemd/journal/synced":                                  true, // journalctl --sync
		"/tmp/x":                                                       false,
		"/usr/local/bin/moaid-lab":                                     true,
		"/usr/local/bin/moaid":                                         false,
		"/run/user/1000/bus":                                           true,
		"/run/moai/manage.sock":                                        false,
		"/run/systemd/units/invocation:moai-kvd.service":               true,
		"/run/systemd/transient/moai-engine.service":                   false,
		"/run/systemd/transient/session-4.scope":                       true,
		"/run/systemd/propagate/moai-kvd.service":                      false,
		"/var/lib/systemd/linger/ops":                                  false,
		"/home/ubuntu/.bash_history":                                   false,
		"/etc/systemd/system/multi-user.target.wants/moai-kvd.service": false,
		"/dev/shm/moai":                                                false,
	} {
		if got := Tolerated("file", name); (got != "") != want {
			t.Errorf("file %s: tolerated %q, want %v", name, got, want)
		}
	}
	for name, want := range map[string]bool{
		"systemd (/usr/lib/systemd/systemd) in /user.slice/user-1000.slice/user@1000.service/init.scope: /lib/systemd/systemd --user":     true,
		"systemd-hostnam (/usr/lib/systemd/systemd-hostnamed) in /system.slice/systemd-hostnamed.service: /lib/systemd/systemd-hostnamed": true,
		"moaid (/opt/moai/bin/moaid) in /system.slice/moai-kvd.service: moaid kvd":                                                        false,
	} {
		if got := Tolerated("process", name); (got != "") != want {
			t.Errorf("process %s: tolerated %q, want %v", name, got, want)
		}
	}
	if Tolerated("service", "user@1000.service") == "" || Tolerated("service", "moai-kvd.service") != "" || Tolerated("user", "/etc/passwd-") != "" {
		t.Error("services and users")
	}
}

func TestParse(t *testing.T) {
	users := parseAccounts("root:x:0:0:root:/root:/bin/bash\nbad line\nadmin:x:1000:1000::/home/admin:/bin/bash\n")
	if len(users) != 2 || users[0] != (Account{"admin", "1000:1000::/home/admin:/bin/bash"}) {
		t.Errorf("accounts %+v", users)
	}
	list := parseUnits("ssh.service                loaded active running OpenBSD Secure Shell server\nx.service\n", 2)
	if len(list) != 1 || list[0] != (Unit{"ssh.service", "active"}) {
		t.Errorf("units %+v", list)
	}
	for text, want := range map[string]string{
		"1:cpu:/\n0::/moai-lab-moai/h100-0/box/payload/system.slice/ssh.service\n": "/system.slice/ssh.service",
		"0::/moai-lab-moai/h100-0/box/payload\n":                                   "/",
		"0::/elsewhere\n":                                                          "/elsewhere",
		"1:cpu:/\n":                                                                "",
	} {
		if got := hostCgroup(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]bool{"NSpid:\t12\t1\n": true, "Name:\tx\nNSpid:\t12\n": false, "": false} {
		if inside(text) != want {
			t.Errorf("inside(%q) is not %v", text, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/bash\n", 2)
	f.Add("ssh.service loaded active running x\n", 1)
	f.Add("0::/moai-lab-moai/h/box/payload/x\n", 0)
	f.Fuzz(func(t *testing.T, text string, column int) {
		for _, a := range parseAccounts(text) {
			if strings.ContainsAny(a.Name, ":\n") {
				t.Errorf("account name %q", a.Name)
			}
		}
		for _, u := range parseUnits(text, max(0, column%8)) {
			if len(strings.Fields(u.Name)) != 1 {
				t.Errorf("unit name %q", u.Name)
			}
		}
		if strings.Contains(hostCgroup(text), "\n") {
			t.Error("a cgroup of several lines")
		}
		Tolerated("file", text)
	})
}
