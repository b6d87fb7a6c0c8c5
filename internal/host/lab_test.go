package host_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/facts"
	"github.com/moai-dev/terraform-provider-moai/internal/host"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
	"github.com/moai-dev/terraform-provider-moai/internal/systemd"
)

// labTargets are the hosts of a running lab, by name: eval "$(lab env)" and run under "lab exec".
func labTargets(t *testing.T) map[string]ssh.Target {
	t.Helper()
	names := strings.Fields(os.Getenv("MOAI_LAB_HOSTS"))
	if len(names) == 0 {
		t.Skip("no lab: bring one up, then eval \"$(lab env)\" and run this under \"lab exec\"")
	}
	out := map[string]ssh.Target{}
	for _, n := range names {
		get := func(key string) string {
			v := os.Getenv("MOAI_LAB_" + strings.ToUpper(strings.ReplaceAll(n, "-", "_")) + "_" + key)
			if v == "" {
				t.Fatalf("the lab's environment has no %s of %s", key, n)
			}
			return v
		}
		key, err := os.ReadFile(get("PRIVATE_KEY_FILE"))
		if err != nil {
			t.Fatal(err)
		}
		port, err := strconv.Atoi(get("PORT"))
		if err != nil {
			t.Fatal(err)
		}
		out[n] = ssh.Target{Name: n, Host: get("ADDRESS"), Port: port, User: get("USER"), PrivateKey: ssh.Secret(key), HostKey: get("HOST_KEY")}
	}
	return out
}

func labHosts(t *testing.T, f func(t *testing.T, name string, h *host.Host)) {
	for n, target := range labTargets(t) {
		t.Run(n, func(t *testing.T) {
			p := ssh.NewPool(ssh.Options{})
			t.Cleanup(p.Close)
			c, err := p.Conn(target)
			if err != nil {
				t.Fatal(err)
			}
			f(t, n, host.New(c, host.Options{Trees: []string{"/var/lib/moai-hosttest"}}))
		})
	}
}

func TestLabFacts(t *testing.T) {
	labHosts(t, func(t *testing.T, name string, h *host.Host) {
		f, err := h.Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", f)
		e := facts.Expect{Vendor: facts.VendorNone}
		eight := 8
		switch {
		case strings.HasPrefix(name, "h100"):
			e = facts.Expect{Vendor: "nvidia", GPU: "H100", GPUCount: &eight}
		case strings.HasPrefix(name, "mi300x"):
			e = facts.Expect{Vendor: "amd", GPU: "MI300X", GPUCount: &eight}
		}
		if m := facts.Check(f, e); len(m) != 0 {
			t.Errorf("%v", m)
		}
		if f.Systemd == 0 || len(f.MachineID) != 32 || len(f.NICs) == 0 {
			t.Errorf("%+v", f)
		}
		for _, a := range f.Accelerators {
			if a.MemoryBytes == 0 {
				t.Errorf("%+v", a)
			}
		}
	})
}

// TestLabService: a user, a file and a hardened unit whose arguments hold everything that wants escaping, on a real systemd;
// the program writes its arguments down, so that they can be compared.
func TestLabService(t *testing.T) {
	labHosts(t, func(t *testing.T, _ string, h *host.Host) {
		ctx := t.Context()
		const unit, dir = "moai-hosttest.service", "/var/lib/moai-hosttest"
		args := []string{"a b", "%n", "%%", "$HOME", "${X}", "$$", `"`, `\`, `\n`, "line\nbreak", "\ttab", ";", "'", "#", "é", "", "-x"}
		svc := systemd.Service{
			Description: "Test of 100% escaping", Type: "exec",
			Exec:        append([]string{"/bin/sh", "-c", `printf '%s\0' "$@" >/var/lib/moai-hosttest/out; printf '%s' "$V" >/var/lib/moai-hosttest/env; exec sleep 600`, "sh"}, args...),
			Environment: map[string]string{"V": "x $y \"z\" %n\n"},
			User:        "moai-hosttest", Group: "moai-hosttest", StateDirectory: "moai-hosttest", LimitNOFILE: 4096, LimitMEMLOCK: "infinity",
			FileDescriptorStoreMax: 8, Hardening: systemd.Strict(),
		}
		text, err := svc.Render(systemd.Owner{Fleet: "test", Resource: "x", Writer: "y"})
		if err != nil {
			t.Fatal(err)
		}
		cleanup := func() {
			_, e1 := h.RemoveFile(ctx, host.UnitDir+"/"+unit)
			e0 := h.DisableNow(ctx, unit)
			e2 := h.DaemonReload(ctx)
			_, e3 := h.RemoveTree(ctx, dir)
			_, e4 := h.RemoveUser(ctx, "moai-hosttest", false)
			if err := errors.Join(e0, e1, e2, e3, e4); err != nil {
				t.Error(err)
			}
			if r, err := h.RemoveUser(ctx, "moai-hosttest", false); err != nil || r != host.Gone {
				t.Errorf("user is %v %v", r, err)
			}
			if r, err := h.RemoveGroup(ctx, "moai-hosttest"); err != nil || r != host.Gone {
				t.Errorf("group is %v %v", r, err)
			}
		}
		cleanup0 := func() { _ = h.DisableNow(ctx, unit); cleanup() }
		cleanup0()
		for _, want := range []bool{true, false} {
			if changed, err := h.EnsureUser(ctx, host.User{Name: "moai-hosttest", Group: "moai-hosttest", System: true, Extra: []string{"video", "nosuchgroup"}}); err != nil || changed != want {
				t.Fatalf("EnsureUser: %v %v", changed, err)
			}
		}
		if _, err := h.PutFile(ctx, host.File{Path: host.UnitDir + "/" + unit, Content: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(h.DaemonReload(ctx), h.EnableNow(ctx, unit)); err != nil {
			t.Fatal(err)
		}
		files, units, err := h.Inspect(ctx, []string{host.UnitDir + "/" + unit, "/nothing"}, []string{unit, "none.service"})
		if err != nil || !files[0].Exists() || files[1].Exists() || !units[0].Active() || !units[0].Enabled() || units[0].MainPID == 0 || units[0].NeedDaemonReload || units[1].Found() {
			t.Errorf("%+v %+v %v", files, units, err)
		}
		var out []byte
		for range 50 {
			if out, err = h.ReadFile(ctx, dir+"/out"); err == nil && len(out) > 0 {
				break
			}
		}
		if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); strings.Join(got, "\x01") != strings.Join(args, "\x01") {
			t.Errorf("arguments arrived as %q (%v)", got, err)
		}
		if env, err := h.ReadFile(ctx, dir+"/env"); err != nil || string(env) != svc.Environment["V"] {
			t.Errorf("environment arrived as %q %v", env, err)
		}
		if _, err := h.PutFile(ctx, host.File{Path: host.UnitDir + "/" + unit, Content: []byte(text + "# changed\n")}); err != nil {
			t.Fatal(err)
		}
		if _, units, err = h.Inspect(ctx, nil, []string{unit}); err != nil || !units[0].NeedDaemonReload {
			t.Errorf("%+v %v", units, err)
		}
		cleanup()
		if _, units, err = h.Inspect(ctx, nil, []string{unit}); err != nil || units[0].Found() || units[0].MainPID != 0 {
			t.Errorf("after removal: %+v %v", units, err)
		}
	})
}

func TestLabUnitFailure(t *testing.T) {
	labHosts(t, func(t *testing.T, _ string, h *host.Host) {
		ctx := t.Context()
		const unit = "moai-hosttest-bad.service"
		text, err := systemd.Service{Description: "bad", Type: "notify", Exec: []string{"/bin/sh", "-c", "echo my last words; exit 3"}, Restart: "no"}.Render(systemd.Owner{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.PutFile(ctx, host.File{Path: host.UnitDir + "/" + unit, Content: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		if err := h.DaemonReload(ctx); err != nil {
			t.Fatal(err)
		}
		if err := h.Restart(ctx, unit); err == nil || !strings.Contains(err.Error(), "my last words") {
			t.Errorf("got %v", err)
		}
		_, e1 := h.RemoveFile(ctx, host.UnitDir+"/"+unit)
		if err := errors.Join(h.ResetFailed(ctx, unit), h.DisableNow(ctx, unit), e1, h.DaemonReload(ctx)); err != nil {
			t.Error(err)
		}
	})
}

func TestLabUploadAndLock(t *testing.T) {
	labHosts(t, func(t *testing.T, _ string, h *host.Host) {
		ctx := t.Context()
		l, err := h.Lock(ctx, "the lab test")
		if err != nil {
			t.Fatal(err)
		}
		content := bytes.Repeat([]byte("0123456789abcdef payload "), 16<<20/25)
		begin := time.Now()
		f := host.File{Path: "/var/lib/moai-hosttest/bin/big", Content: content, Mode: 0o755}
		changed, err := h.PutFile(ctx, f)
		t.Logf("16 MiB in %s", time.Since(begin))
		if err != nil || !changed {
			t.Errorf("%v %v", changed, err)
		}
		if changed, err := h.PutFile(ctx, f); err != nil || changed {
			t.Errorf("again: %v %v", changed, err)
		}
		if r, err := h.RemoveTree(ctx, "/var/lib/moai-hosttest"); err != nil || r != host.Removed {
			t.Errorf("%v %v", r, err)
		}
		if err := l.Release(ctx); err != nil {
			t.Error(err)
		}
		if _, err := h.Exec(ctx, "rm", "-rf", "/var/lib/moai/fence"); err != nil {
			t.Error(err)
		}
		if r, err := h.RemoveDir(ctx, "/var/lib/moai"); err != nil {
			t.Errorf("%v %v", r, err)
		}
	})
}

// TestLabSudoPassword: a real sudo that asks, one that does not although a password is given, and one that is told a wrong one.
func TestLabSudoPassword(t *testing.T) {
	targets := labTargets(t)
	if os.Getenv("MOAI_LAB_TIER") == "G" {
		t.Skip("hosts of tier G have one user to the kernel and no PAM: their sudo asks nobody for a password")
	}
	labHosts(t, func(t *testing.T, name string, h *host.Host) {
		ctx := t.Context()
		must := func(argv ...string) {
			t.Helper()
			if _, err := h.Exec(ctx, argv...); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { _, _ = h.Exec(t.Context(), "true") })
		must("sh", "-c", "id hosttest >/dev/null 2>&1 || useradd -m -s /bin/sh hosttest; echo hosttest:hunter22 | chpasswd; mkdir -p /home/hosttest/.ssh; cp $(getent passwd "+
			targets[name].User+" | cut -d: -f6)/.ssh/authorized_keys /home/hosttest/.ssh/; chown -R hosttest /home/hosttest/.ssh; printf 'hosttest ALL=(ALL) ALL\\n' >/etc/sudoers.d/hosttest")
		for _, tt := range []struct {
			password ssh.Secret
			ok       bool
		}{{"hunter22", true}, {"not-this-one", false}, {"", false}} {
			g := targets[name]
			g.User, g.Become.Password = "hosttest", tt.password
			p := ssh.NewPool(ssh.Options{})
			t.Cleanup(p.Close)
			c, err := p.Conn(g)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				res, err := c.Run(ctx, ssh.Cmd{Script: "id -u; cat", Sudo: true, Stdin: strings.NewReader("input\n")})
				if tt.ok && (err != nil || string(res.Stdout) != "0\ninput\n" || len(res.Stderr) > 0) || !tt.ok && !errors.Is(err, ssh.ErrSudo) {
					t.Errorf("password %v: %q %q %v", tt.ok, res.Stdout, res.Stderr, err)
				}
				if err != nil {
					t.Log(err)
				}
			}
		}
		g := targets[name]
		g.Become.Password = "unneeded"
		p := ssh.NewPool(ssh.Options{})
		t.Cleanup(p.Close)
		c, err := p.Get(ctx, g)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := c.Run(ctx, ssh.Cmd{Script: "cat", Sudo: true, Stdin: strings.NewReader("x")}); err != nil || string(res.Stdout) != "x" {
			t.Errorf("free sudo: %q %v", res.Stdout, err)
		}
		must("sh", "-c", "rm -f /etc/sudoers.d/hosttest; userdel -r hosttest 2>/dev/null || userdel -rf hosttest")
	})
}

// TestLabCancelLeavesNothing: a command that is interrupted does not go on on the host, also as root.
func TestLabCancelLeavesNothing(t *testing.T) {
	labHosts(t, func(t *testing.T, _ string, h *host.Host) {
		for _, sudo := range []bool{false, true} {
			marker := "3" + strconv.Itoa(time.Now().Nanosecond())
			running := func() bool {
				t.Helper()
				out, err := h.Exec(t.Context(), "sh", "-c", "pgrep -a -x sleep || true")
				if err != nil {
					t.Fatal(err)
				}
				return strings.Contains(string(out), marker)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := h.Conn().Run(ctx, ssh.Cmd{Argv: []string{"sleep", marker}, Sudo: sudo})
				done <- err
			}()
			for n := 0; !running(); n++ {
				if n == 100 {
					t.Fatal("the command never ran")
				}
			}
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			for n := 0; running(); n++ {
				if n == 100 {
					t.Fatalf("sudo %v: the command still runs", sudo)
				}
			}
		}
	})
}

// TestLabBastion goes to each host through another, over real sshds.
func TestLabBastion(t *testing.T) {
	targets := labTargets(t)
	for name, g := range targets {
		for other, b := range targets {
			if other == name {
				continue
			}
			g.Bastions = []ssh.Hop{{Host: b.Host, Port: b.Port, User: b.User, PrivateKey: b.PrivateKey, HostKey: b.HostKey}}
			p := ssh.NewPool(ssh.Options{})
			t.Cleanup(p.Close)
			c, err := p.Get(t.Context(), g)
			if err != nil {
				t.Error(err)
				continue
			}
			if res, err := c.Run(t.Context(), ssh.Cmd{Argv: []string{"uname", "-n"}}); err != nil || strings.TrimSpace(string(res.Stdout)) != name {
				t.Errorf("%q %v", res.Stdout, err)
			}
		}
	}
}
