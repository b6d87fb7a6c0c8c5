package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/machine"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/manifest"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/network"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
)

func TestMissingPackages(t *testing.T) {
	has := func(progs ...string) func(string) (string, error) {
		return func(p string) (string, error) {
			if slices.Contains(progs, p) {
				return p, nil
			}
			return "", exec.ErrNotFound
		}
	}
	if got := missingPackages(has("/usr/share/keyrings/debian-archive-keyring.gpg", "ip", "ssh", "nsenter", "nft")); !slices.Equal(got, []string{"mmdebstrap", "systemd-container"}) {
		t.Errorf("got %v", got)
	}
	if got := missingPackages(has("/usr/share/keyrings/debian-archive-keyring.gpg", "ip", "ssh", "nsenter", "nft", "mmdebstrap", "systemd-nspawn")); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

// skip says what this machine lacks; where MOAI_REQUIRE is set, that is a failure.
func skip(t *testing.T, missing string) {
	t.Helper()
	if os.Getenv("MOAI_REQUIRE") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

// open returns a lab of the test's own; images are shared with other labs of this machine.
func open(t *testing.T, name string) *Lab {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: boots hosts")
	}
	dir := os.Getenv("MOAI_LAB_DIR")
	if dir == "" {
		dir = "/var/tmp/moai-lab"
	}
	l, err := Open(Config{Dir: dir, Name: name, Say: t.Logf})
	var missing *MissingError
	if errors.As(err, &missing) {
		skip(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	if need := missingPackages(lookup); len(need) > 0 {
		skip(t, "needs the packages "+strings.Join(need, " "))
	}
	return l
}

func options(hosts ...string) UpOptions {
	return UpOptions{Hosts: hosts, Disk: "256m", Deadline: 2 * time.Minute}
}

// leftovers lists what there is of a lab on this machine.
func leftovers(t *testing.T, l *Lab) []string {
	t.Helper()
	var found []string
	if _, err := os.Stat(l.dir); err == nil {
		found = append(found, l.dir)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/" + l.Plan.Cgroup(), "/sys/fs/cgroup/*/" + l.Plan.Cgroup(), "/run/netns/" + l.Plan.Name + "-*"} {
		match, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, match...)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, l.dir+"/") || strings.Contains(line, "/netns/"+l.Plan.Name+"-") {
			found = append(found, line)
		}
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands {
		if text, err := os.ReadFile(c); err == nil && (strings.Contains(string(text), "--machine="+l.Plan.Name+"-") || strings.Contains(string(text), "moai-lab-keeper-"+l.Plan.Name)) {
			found = append(found, strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return found
}

func down(t *testing.T, l *Lab) {
	t.Helper()
	if err := l.Down(context.Background()); err != nil {
		t.Error(err)
	}
	if left := leftovers(t, l); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}

func TestLab(t *testing.T) {
	l := open(t, fmt.Sprintf("t%d", os.Getpid()))
	ctx := t.Context()
	defer down(t, l)
	if err := l.Up(ctx, options("h100-0", "mi300x-0")); err != nil {
		t.Fatal(err)
	}
	nvidia, amd := host(t, l, "h100-0"), host(t, l, "mi300x-0")
	login := func(m *machine.Machine, command string) string {
		t.Helper()
		out, err := m.Login(ctx, command)
		if err != nil {
			t.Fatalf("%s: %v", m.Host.Name, err)
		}
		return strings.TrimSpace(out)
	}

	t.Run("users", func(t *testing.T) {
		if got := login(nvidia, "id -un; sudo -n id -u; hostname; systemctl is-system-running"); got != "ubuntu\n0\nh100-0\nrunning" {
			t.Errorf("h100-0: %q", got)
		}
		if got := login(amd, "id -un; cat /etc/machine-id; ip -o -4 addr show dev eth1 | grep -o '10[.0-9]*/24'"); got != "ops\n"+amd.Host.MachineID()+"\n10.78.0.12/24" {
			t.Errorf("mi300x-0: %q", got)
		}
		stranger := *amd
		stranger.Keys.User = nvidia.Keys.User
		if _, err := stranger.Login(ctx, "true"); err == nil || !strings.Contains(err.Error(), "unable to authenticate") {
			t.Errorf("one host's key opens another: %v", err)
		}
		if got := login(amd, "command -v python3 || echo none; ip route show default; timeout 2 bash -c '</dev/tcp/10.0.0.1/22' 2>&1 | grep -o -m1 'Network is unreachable' | head -1"); got != "none\nNetwork is unreachable" {
			t.Errorf("python or a way out: %q", got)
		}
	})
	t.Run("stand-ins", func(t *testing.T) {
		if got := login(nvidia, "nvidia-smi --query-gpu=name --format=csv,noheader | uniq -c; lspci -Dnn | grep -c 10de:2330"); got != "8 NVIDIA H100 80GB HBM3\n8" {
			t.Errorf("h100-0: %q", got)
		}
		if got := login(amd, `sudo -n amd-smi static --asic --json | grep -c '"market_name": "AMD Instinct MI300X"'; amd-smi static --json | head -1; /opt/rocm/bin/amd-smi list --json | grep -c bdf`); got != "8\nPermission needed to access required GPU device node(s):\n8" {
			t.Errorf("mi300x-0: %q", got)
		}
	})
	t.Run("power", func(t *testing.T) {
		before := login(amd, "echo kept >~/file; sync; systemctl show -P UserspaceTimestampMonotonic")
		if err := amd.Cut(ctx); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := network.Dial(short, l.Plan.Namespace(), "10.77.0.12:22"); err == nil {
			t.Error("a host without power answers")
		}
		if amd.State() != machine.Off || nvidia.State() != machine.On {
			t.Errorf("states %s, %s", amd.State(), nvidia.State())
		}
		if err := l.Start(ctx, []string{"mi300x-0"}); err != nil {
			t.Fatal(err)
		}
		if got := login(amd, "cat ~/file; rm ~/file; systemctl show -P UserspaceTimestampMonotonic"); !strings.HasPrefix(got, "kept\n") || strings.HasSuffix(got, before) {
			t.Errorf("after the power cut: %q; booted at %s before", got, before)
		}
		if err := l.Reboot(ctx, []string{"mi300x-0"}); err != nil {
			t.Error(err)
		}
	})
	t.Run("partition", func(t *testing.T) {
		reach := "timeout 1 bash -c '</dev/tcp/10.78.0.12/22' && echo yes || echo no"
		hosts := l.Plan.Hosts
		if err := network.Cut(ctx, l.Plan, hosts, []plan.Net{plan.Fabric}); err != nil {
			t.Fatal(err)
		}
		if got := login(nvidia, reach); got != "no" {
			t.Errorf("across a partition: %s", got)
		}
		if err := network.Heal(ctx, l.Plan, hosts, []plan.Net{plan.Fabric}); err != nil {
			t.Fatal(err)
		}
		if got := login(nvidia, reach); got != "yes" {
			t.Errorf("after healing: %s", got)
		}
	})
	t.Run("snapshot", func(t *testing.T) {
		differences := func(before manifest.Manifest) []string {
			after, err := l.Snapshot(ctx, "h100-0")
			if err != nil {
				t.Fatal(err)
			}
			var list []string
			for _, c := range manifest.Diff(before, after) {
				if c.Reason == "" {
					list = append(list, c.String())
				}
			}
			return list
		}
		before, err := l.Snapshot(ctx, "h100-0")
		if err != nil {
			t.Fatal(err)
		}
		login(nvidia, `sudo -n sh -c 'useradd --system probe && printf "[Service]\nExecStart=/bin/sleep 1000\nUser=probe\n[Install]\nWantedBy=multi-user.target\n" >/etc/systemd/system/probe.service && systemctl enable --now probe.service'`)
		changed := strings.Join(differences(before), "\n")
		for _, want := range []string{"+ user probe:", "+ group probe:", "+ file /etc/systemd/system/probe.service:", "+ unit file probe.service: enabled", "+ service probe.service: active", "+ process sleep (/usr/bin/sleep)", "~ file /etc/passwd:"} {
			if !strings.Contains(changed, want) {
				t.Errorf("no %q in\n%s", want, changed)
			}
		}
		login(nvidia, `sudo -n sh -c 'systemctl disable --now probe.service && rm /etc/systemd/system/probe.service && systemctl daemon-reload && userdel probe'`)
		if left := differences(before); len(left) > 0 {
			t.Errorf("as it was found, but for\n%s", strings.Join(left, "\n"))
		}
	})
	t.Run("up again", func(t *testing.T) {
		leader, err := nvidia.Leader()
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Up(ctx, options()); err != nil {
			t.Fatal(err)
		}
		if again, err := nvidia.Leader(); err != nil || again != leader {
			t.Errorf("a second up booted the host again: %d, %d, %v", leader, again, err)
		}
	})
	t.Run("down ends its own only", func(t *testing.T) {
		args := network.Enter(l.Plan.Namespace(), "sleep", "1000")
		other := exec.CommandContext(ctx, args[0], args[1:]...)
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		down(t, l)
		if err := other.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("somebody else's process is gone: %v", err)
		}
		_ = other.Process.Kill()
		_ = other.Wait()
	})
}

func host(t *testing.T, l *Lab, name string) *machine.Machine {
	t.Helper()
	m, err := l.Machine(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestUpKilled kills an Up in the middle: Down must then take everything away, and Up must work again.
func TestUpKilled(t *testing.T) {
	name := os.Getenv("MOAI_LAB_TEST_UP")
	if name != "" { // the child
		if err := open(t, name).Up(t.Context(), options("gateway")); err != nil {
			t.Fatal(err)
		}
		return
	}
	name = fmt.Sprintf("k%d", os.Getpid())
	l := open(t, name)
	defer down(t, l)
	if _, err := l.Build(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, stage := range []string{filepath.Join(l.dir, "hosts", "gateway", "root", "etc", "hostname"), l.group.Host("gateway").Path()} {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestUpKilled$")
		child.Env = append(os.Environ(), "MOAI_LAB_TEST_UP="+name)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		for _, err := os.Stat(stage); err != nil; _, err = os.Stat(stage) {
			if t.Context().Err() != nil {
				t.Fatal("up never came so far")
			}
			time.Sleep(time.Millisecond)
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait()
		down(t, l)
	}
	if err := l.Up(t.Context(), options("gateway")); err != nil {
		t.Error(err)
	}
}
