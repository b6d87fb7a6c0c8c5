package lab

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/manifest"
)

// TestMain lets a lab start its own processes from this program.
func TestMain(m *testing.M) {
	Main(os.Args)
	os.Exit(m.Run())
}

// ordinary is a user that the machine knows nothing of, without subordinate ids.
const ordinary = 54321

// TestLabWithoutRoot makes a lab of tier G, as who runs the test and, where that is root, once more as an ordinary user.
func TestLabWithoutRoot(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: starts hosts")
	}
	if err := availableG(t.Context()); err != nil {
		skip(t, err.Error())
	}
	dir, err := os.MkdirTemp("/var/tmp", "lab-g-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Run("as who runs this", func(t *testing.T) { withoutRoot(t, dir) })
	if os.Geteuid() != 0 {
		return
	}
	t.Run("as an ordinary user", func(t *testing.T) {
		binary, err := os.ReadFile(os.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		own := filepath.Join(dir, "own")
		program := filepath.Join(own, "lab.test")
		for _, err := range []error{os.Chmod(dir, 0o755), os.Mkdir(own, 0o755), os.WriteFile(program, binary, 0o755), os.Chown(own, ordinary, ordinary)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestLabWithoutRoot$", "-test.v")
		cmd.Dir = own
		cmd.Env = append(os.Environ(), "TMPDIR="+own, "HOME="+own)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Contains(string(out), "--- SKIP") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

func withoutRoot(t *testing.T, dir string) {
	binary := filepath.Join(dir, "moaid-lab")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\necho stand-in \"$0\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("g%d", os.Getpid())
	l, err := tierG().Open(Config{Dir: dir, Name: name, Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	down := func() {
		t.Helper()
		if err := l.Down(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if left := processes(t, name); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		if _, err := os.Stat(filepath.Join(dir, "labs", name)); err == nil {
			t.Error("the state folder is left")
		}
	}
	defer down()
	up := func() {
		t.Helper()
		if err := l.Up(t.Context(), UpOptions{Hosts: []string{"gateway", "h100-0"}, Disk: "64m", MoaidLab: binary, Deadline: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	up()
	env, err := l.Env()
	if err != nil {
		t.Fatal(err)
	}
	run := func(host, script string) (string, error) {
		argv := slices.Concat(env.Enter, []string{"ssh", "-F", env.SSHConfig, host, script})
		out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	want := func(host, script, want string) {
		t.Helper()
		if got, err := run(host, script); err != nil || got != want {
			t.Errorf("%s: %s: %q, %v; want %q", host, script, got, err, want)
		}
	}

	t.Run("a host is itself", func(t *testing.T) {
		want("h100-0", "uname -n; cat /etc/hostname; nvidia-smi; sudo -n id -u; stat -c '%U:%G %a' .ssh", "h100-0\nh100-0\nstand-in /usr/local/bin/nvidia-smi\n0\nubuntu:ubuntu 700")
		if _, err := run("gateway", "exit 7"); err == nil {
			t.Error("the exit status is lost")
		}
	})
	t.Run("the machine is out of reach", func(t *testing.T) {
		secret := filepath.Join(dir, "secret")
		if err := os.WriteFile(secret, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		here, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = here.Close() }()
		_, port, _ := net.SplitHostPort(here.Addr().String())
		for what, script := range map[string]string{
			"the machine's files":     "sudo -n cat " + secret,
			"the machine's programs":  "sudo -n touch /usr/bin/of-the-lab",
			"the machine's sysctls":   "sudo -n sh -c 'echo 61 >/proc/sys/vm/swappiness'",
			"the machine's /sys":      "ls /sys/class",
			"the machine's loopback":  "timeout 5 bash -c '</dev/tcp/127.0.0.1/" + port + "'",
			"the machine's processes": "test -e /proc/" + fmt.Sprint(os.Getpid()) + "/exe && tr '\\0' ' ' </proc/" + fmt.Sprint(os.Getpid()) + "/cmdline | grep lab.test",
			"the machine's root":      "sudo -n sh -c 'ls /proc/1/root" + dir + "'",
			"the other host's files":  "test -e /home/admin",
		} {
			if out, err := run("h100-0", script); err == nil {
				t.Errorf("%s can be reached: %s", what, out)
			}
		}
		if _, err := os.Stat("/usr/bin/of-the-lab"); err == nil {
			t.Error("a file of a host is on the machine")
		}
	})
	t.Run("units", func(t *testing.T) {
		const unit = "probe.service"
		// What the shell itself reads: a child of it might look before the lab has seen it.
		write := "sudo -n useradd --system probe && sudo -n tee /etc/systemd/system/probe.service >/dev/null <<'END'\n" +
			"[Unit]\nDescription=p\n[Service]\nExecStart=/bin/sh -c \"read x </proc/self/cgroup; echo $$x; sleep 1000\"\nUser=probe\nRestart=always\n" +
			"RestartSec=50ms\nStateDirectory=probe\n[Install]\nWantedBy=multi-user.target\nEND\n" +
			"sudo -n systemctl daemon-reload && sudo -n systemctl enable --now probe.service"
		before, err := l.Snapshot(t.Context(), "h100-0")
		if err != nil {
			t.Fatal(err)
		}
		want("h100-0", write, "")
		waitFor(t, func() bool {
			out, _ := run("h100-0", "journalctl -u probe -o cat")
			return strings.Contains(out, "0::/system.slice/probe.service")
		})
		want("h100-0", "systemctl is-active "+unit+"; systemctl is-enabled "+unit+"; stat -c %U /var/lib/probe", "active\nenabled\nprobe")
		want("h100-0", "sudo -n systemctl kill -s KILL "+unit, "")
		waitFor(t, func() bool {
			out, _ := run("h100-0", "systemctl show -P NRestarts,ActiveState "+unit)
			return strings.Contains(out, "1") && strings.Contains(out, "active")
		})
		after, err := l.Snapshot(t.Context(), "h100-0")
		if err != nil {
			t.Fatal(err)
		}
		changed := differences(before, after)
		for _, want := range []string{"+ user probe:", "+ file /etc/systemd/system/probe.service:", "+ unit file probe.service: enabled", "+ service probe.service: active", "+ process sh "} {
			if !strings.Contains(changed, want) {
				t.Errorf("no %q in\n%s", want, changed)
			}
		}
		want("h100-0", "sudo -n sh -c 'systemctl disable --now probe.service && rm -r /etc/systemd/system/probe.service /var/lib/probe && systemctl daemon-reload && userdel probe'", "")
		if after, err = l.Snapshot(t.Context(), "h100-0"); err != nil {
			t.Fatal(err)
		}
		if left := differences(before, after); left != "" {
			t.Errorf("as it was found, but for\n%s", left)
		}
	})
	t.Run("power", func(t *testing.T) {
		want("gateway", "echo kept >file; sudo -n touch /run/of-this-boot", "")
		for _, verb := range []string{"kill", "start", "reboot", "freeze", "thaw"} {
			if err := l.Power(t.Context(), verb, []string{"gateway"}); err != nil {
				t.Fatalf("%s: %v", verb, err)
			}
			states, err := l.Status()
			if err != nil {
				t.Fatal(err)
			}
			if got, want := states[0].State, map[string]string{"kill": "off", "freeze": "frozen"}[verb]; got != want && (want != "" || got != "on") {
				t.Errorf("after %s: %s", verb, got)
			}
		}
		want("gateway", "cat file; ls /run/of-this-boot 2>/dev/null || echo gone", "kept\ngone")
	})
	t.Run("up again", func(t *testing.T) {
		want("gateway", "sudo -n touch /run/of-this-boot", "")
		up()
		want("gateway", "ls /run/of-this-boot", "/run/of-this-boot")
	})
	t.Run("a lab whose processes were killed", func(t *testing.T) {
		holder := filepath.Join(dir, "labs", name, "holder")
		pid := strings.Fields(read(t, holder))[0]
		// As if the command that started it had been killed before it wrote down what it started.
		if err := os.Remove(holder); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Env(); err != nil {
			t.Errorf("a lab that nobody wrote down is not found: %v", err)
		}
		if err := exec.CommandContext(t.Context(), "kill", "-9", pid).Run(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { return len(processes(t, name)) == 0 })
		up()
		if env, err = l.Env(); err != nil {
			t.Fatal(err)
		}
		want("gateway", "uname -n", "gateway")
	})
}

func differences(before, after manifest.Manifest) string {
	var list []string
	for _, c := range manifest.Diff(before, after) {
		if c.Reason == "" {
			list = append(list, c.String())
		}
	}
	return strings.Join(list, "\n")
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// processes lists the processes of a lab by their names.
func processes(t *testing.T, name string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		line := strings.ReplaceAll(string(text), "\x00", " ")
		if err == nil && (strings.HasPrefix(line, "moai-lab-holder-"+name) || strings.HasPrefix(line, "moai-lab-host-"+name+"-")) {
			found = append(found, line)
		}
	}
	return found
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("it never happened")
		}
	}
}

// TestNoNamespaces asks for tier G where the kernel gives no user namespace: it is refused, with the reason.
func TestNoNamespaces(t *testing.T) {
	const variable = "MOAI_LAB_TEST_REFUSED"
	if os.Getenv(variable) != "" { // inside
		err := availableG(t.Context())
		if err == nil || !strings.Contains(err.Error(), "user.max_user_namespaces") {
			t.Errorf("not refused with its reason: %v", err)
		}
		return
	}
	if err := availableG(t.Context()); err != nil {
		skip(t, err.Error())
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--user", "--map-root-user", "sh", "-c",
		`echo 0 >/proc/sys/user/max_user_namespaces && exec "$0" -test.run='^TestNoNamespaces$' -test.v`, os.Args[0])
	cmd.Env = append(os.Environ(), variable+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}
