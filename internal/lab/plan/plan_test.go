package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func mustPlan(t interface {
	Helper()
	Fatal(...any)
}, names ...string,
) Plan {
	t.Helper()
	p, err := New("moai")
	if err == nil {
		n := 0
		p, err = p.With(names, func() string { n++; return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{"moai": true, "a1": true, "": false, "a-b": false, "A": false, "1a": false, "abcdefghijklmnopq": false, "a/b": false} {
		if _, err := New(name); (err == nil) != ok {
			t.Errorf("lab %q: %v", name, err)
		}
	}
	p := mustPlan(t)
	for name, ok := range map[string]bool{
		"gateway": true, "gateway-1": true, "h100-0": true, "mi300x-12": true,
		"": false, "h100-": false, "b200-0": false, "net": false, "h100-0/..": false,
	} {
		if _, err := p.With([]string{name}, func() string { return "" }); (err == nil) != ok {
			t.Errorf("host %q: %v", name, err)
		}
	}
}

func TestDefaultLab(t *testing.T) {
	p := mustPlan(t, DefaultHosts...)
	var got []string
	for _, h := range p.Hosts {
		got = append(got, strings.Join([]string{h.Name, h.Address(Mgmt).String(), h.Address(Fabric).String(), h.User, h.Profile, h.MAC(Fabric), h.Port(Mgmt)}, " "))
	}
	want := []string{
		"gateway 10.77.0.11 10.78.0.11 admin  02:6c:4e:00:00:0b mgmt1",
		"h100-0 10.77.0.12 10.78.0.12 ubuntu h100x8 02:6c:4e:00:00:0c mgmt2",
		"mi300x-0 10.77.0.13 10.78.0.13 ops mi300x8 02:6c:4e:00:00:0d mgmt3",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if p.Namespace() != "moai-net" || p.HostNamespace("h100-0") != "moai-h100-0" || !p.Owns("moai-h100-0") || p.Owns("moai2-net") || p.Owns("moai") {
		t.Error("namespaces")
	}
}

// TestGrowing checks that a lab which grows keeps what it has, and that no two hosts share anything.
func TestGrowing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf("%s-%d", rapid.SampledFrom([]string{"gateway", "h100", "mi300x"}).Draw(t, "kind"), rapid.IntRange(0, 30).Draw(t, "n"))
		}), 1, 40).Draw(t, "hosts")
		cut := rapid.IntRange(0, len(kinds)).Draw(t, "cut")
		first := mustPlan(t, kinds[:cut]...)
		n := 1000
		second, err := first.With(kinds, func() string { n++; return fmt.Sprint(n) })
		if err != nil {
			t.Fatal(err)
		}
		for i, h := range first.Hosts {
			if second.Hosts[i] != h {
				t.Fatalf("host %s changed to %+v", h.Name, second.Hosts[i])
			}
		}
		seen := map[string]string{}
		for _, h := range second.Hosts {
			for _, own := range []string{h.Name, h.Address(Mgmt).String(), h.Address(Fabric).String(), h.MAC(Mgmt), h.MAC(Fabric), h.Port(Mgmt), h.Port(Fabric), h.UUID} {
				if seen[own] != "" {
					t.Fatalf("%s and %s share %s", h.Name, seen[own], own)
				}
				seen[own] = h.Name
			}
			if len(h.Port(Fabric)) > 15 {
				t.Fatalf("interface name %s is too long", h.Port(Fabric))
			}
		}
	})
}

func TestTooMany(t *testing.T) {
	var names []string
	for i := range maxHosts + 1 {
		names = append(names, fmt.Sprintf("h100-%d", i))
	}
	if _, err := mustPlan(t).With(names, func() string { return "" }); err == nil || !strings.Contains(err.Error(), "at most 200") {
		t.Errorf("got %v", err)
	}
}

func TestEnv(t *testing.T) {
	p := mustPlan(t, "h100-0", "mi300x-0")
	e := p.Env("N", "/state dir/it's", map[string]string{"h100-0": "ssh-ed25519 AAA", "mi300x-0": "ssh-ed25519 BBB"})
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"hosts":{"h100-0":{"name":"h100-0","address":"10.77.0.11","fabric_address":"10.78.0.11","port":22,"user":"ubuntu",` +
			`"private_key_file":"/state dir/it's/keys/h100-0","host_key":"ssh-ed25519 AAA","namespace":"moai-h100-0","profile":"h100x8"`,
		`"namespace":"moai-net"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	shell := e.Shell(p.Names())
	for _, want := range []string{
		`export MOAI_LAB_MI300X_0_ADDRESS='10.77.0.12'`, `export MOAI_LAB_HOSTS='h100-0 mi300x-0'`,
		`export MOAI_LAB_H100_0_PRIVATE_KEY_FILE='/state dir/it'\''s/keys/h100-0'`,
	} {
		if !strings.Contains(shell, want+"\n") {
			t.Errorf("no %s in\n%s", want, shell)
		}
	}
	if got := e.KnownHostsFile(p.Names()); got != "h100-0,10.77.0.11 ssh-ed25519 AAA\nmi300x-0,10.77.0.12 ssh-ed25519 BBB\n" {
		t.Errorf("known_hosts:\n%s", got)
	}
	if got := e.SSHConfigFile(p.Names()); !strings.Contains(got, "Host mi300x-0\n  HostName 10.77.0.12\n  HostKeyAlias mi300x-0\n  Port 22\n  User ops\n") {
		t.Errorf("ssh_config:\n%s", got)
	}
}
