package machine

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
)

func lab(t *testing.T) plan.Plan {
	t.Helper()
	p, err := plan.New("moai")
	if err == nil {
		p, err = p.With([]string{"gateway", "h100-0", "mi300x-0"}, func() string { return "11111111-2222-4333-8444-555555555555" })
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCommands(t *testing.T) {
	p := lab(t)
	boot := spawnCommand(p, p.Hosts[1], "/r")
	want := "nsenter --net=/run/netns/moai-h100-0 -- systemd-nspawn --quiet --boot --directory=/r --machine=moai-h100-0 --hostname=h100-0 " +
		"--uuid=11111111-2222-4333-8444-555555555555 --register=no --keep-unit --capability=CAP_NET_ADMIN,CAP_IPC_LOCK,CAP_SYSLOG " +
		"--link-journal=no --resolv-conf=off --timezone=off"
	if got := strings.Join(boot, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	keeper := keeperCommand("moai-h100-0", "/cg/box", boot)
	if got := keeper[3:5]; !slices.Equal(got, []string{"moai-lab-keeper-moai-h100-0", "/cg/box"}) || !slices.Equal(keeper[5:], boot) {
		t.Errorf("keeper %q", keeper)
	}
	if !strings.Contains(keeperScript, "[ $? = 133 ] || exit") {
		t.Error("the keeper must boot again on status 133, and only then")
	}
}

func TestIsFirst(t *testing.T) {
	for status, want := range map[string][2]bool{ // where our processes are one level below /proc's, and two
		"Name:\tsystemd\nNSpid:\t912\t1\n":     {true, false},
		"Name:\tsshd\nNSpid:\t913\t44\n":       {false, false},
		"Name:\tsystemd\nNSpid:\t1\n":          {false, false}, // ours
		"Name:\tsystemd\nNSpid:\t914\t50\t1\n": {false, true},  // a container's inside the host; the host's
		"Name:\tx\n":                           {false, false},
	} {
		if got := [2]bool{isFirst(status, 2), isFirst(status, 3)}; got != want {
			t.Errorf("isFirst(%q) is %v, want %v", status, got, want)
		}
	}
}

func TestKeys(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "h100-0")
	first, err := LoadKeys(prefix, "ubuntu@h100-0")
	if err != nil {
		t.Fatal(err)
	}
	again, err := LoadKeys(prefix, "ubuntu@h100-0")
	if err != nil {
		t.Fatal(err)
	}
	other, err := LoadKeys(prefix+"x", "ops@mi300x-0")
	if err != nil {
		t.Fatal(err)
	}
	if again.HostKey != first.HostKey || authorized(again.User.PublicKey()) != authorized(first.User.PublicKey()) {
		t.Error("the keys changed between two loads")
	}
	if other.HostKey == first.HostKey || first.HostKey == authorized(first.User.PublicKey()) {
		t.Error("two hosts, or a host and its user, share a key")
	}
	if _, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(first.HostKey)); err != nil || len(rest) > 0 || !strings.HasPrefix(first.HostKey, "ssh-ed25519 ") {
		t.Errorf("host key %q: %v", first.HostKey, err)
	}
}

func TestSeed(t *testing.T) {
	p := lab(t)
	keys, err := LoadKeys(filepath.Join(t.TempDir(), "k"), "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		host  plan.Host
		links []string
		has   map[string]string
	}{
		{p.Hosts[0], nil, map[string]string{"/etc/hostname": "gateway\n", "/etc/sudoers.d/admin": "admin ALL=(ALL) NOPASSWD:ALL\n"}},
		{p.Hosts[1], []string{"/usr/bin/nvidia-smi", "/usr/bin/lspci"}, map[string]string{
			"/etc/moaid-lab/hardware.json": `"profile": "h100x8"`, "/home/ubuntu/.ssh/authorized_keys": "ssh-ed25519 ",
			"/etc/machine-id": "11111111222243338444555555555555\n",
		}},
		{p.Hosts[2], []string{"/usr/bin/amd-smi", "/opt/rocm/bin/amd-smi", "/usr/bin/lspci"}, map[string]string{"/etc/moaid-lab/hardware.json": `"host": "mi300x-0"`}},
	} {
		files, err := SeedFiles(c.host, keys)
		if err != nil {
			t.Fatal(err)
		}
		content := map[string]string{}
		for _, f := range files {
			content[f.Path] = f.Content
			if strings.HasSuffix(f.Path, "_key") && f.Mode != 0o600 {
				t.Errorf("%s has mode %o", f.Path, f.Mode)
			}
		}
		for path, want := range c.has {
			if !strings.Contains(content[path], want) {
				t.Errorf("%s: %s is %q, want %q in it", c.host.Name, path, content[path], want)
			}
		}
		if _, ok := content["/etc/moaid-lab/hardware.json"]; ok != (c.links != nil) {
			t.Errorf("%s: hardware file %v", c.host.Name, ok)
		}
		if got := SeedLinks(c.host.Profile); !slices.Equal(got, c.links) {
			t.Errorf("%s: links %v, want %v", c.host.Name, got, c.links)
		}
	}
}
