package ssh

import (
	"crypto/ed25519"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	"pgregory.net/rapid"
)

// testKey is a fixed key for each seed.
func testKey(t testing.TB, seed byte) (ssh.PublicKey, ssh.Signer) {
	t.Helper()
	priv := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune('a'+seed)), ed25519.SeedSize)))
	signer, err := ssh.NewSignerFromKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	return signer.PublicKey(), signer
}

func TestKnownHosts(t *testing.T) {
	key, _ := testKey(t, 0)
	other, _ := testKey(t, 1)
	line := func(hosts string, k ssh.PublicKey) string { return hosts + " " + authorizedLine(k) + "\n" }
	tests := []struct {
		name, text, host string
		port             int
		accept           bool
	}{
		{"plain", line("h1", key), "h1", 22, true},
		{"upper case", line("H1", key), "h1", 22, true},
		{"list", line("a,h1,b", key), "h1", 22, true},
		{"other host", line("h2", key), "h1", 22, false},
		{"other key", line("h1", other), "h1", 22, false},
		{"second line", line("h1", other) + line("h1", key), "h1", 22, true},
		{"port", line("[h1]:2222", key), "h1", 2222, true},
		{"port not said", line("h1", key), "h1", 2222, false},
		{"wildcard", line("*.example,h?", key), "h1", 22, true},
		{"negated", line("!h1,h*", key), "h1", 22, false},
		{"hashed", line(knownhosts.HashHostname("h1"), key), "h1", 22, true},
		{"hashed with port", line(knownhosts.HashHostname("[h1]:2222"), key), "h1", 2222, true},
		{"hashed other", line(knownhosts.HashHostname("h2"), key), "h1", 22, false},
		{"revoked", "@revoked " + line("*", key) + line("h1", key), "h1", 22, false},
		{"comments", "# x\n\n  \n" + line("h1", key), "h1", 22, true},
		{"carriage returns", strings.ReplaceAll(line("h1", key), "\n", "\r\n"), "h1", 22, true},
		{"address", line("192.0.2.1", key), "192.0.2.1", 22, true},
		{"address v6", line("2001:db8::1", key), "2001:db8::1", 22, true},
		{"unknown kind skipped", "h1 ssh-new AAAAB3NzaC1uZXc=\n" + line("h1", key), "h1", 22, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, err := newVerifier(Target{Host: tt.host, Port: tt.port, KnownHosts: tt.text})
			if err != nil {
				if tt.accept {
					t.Fatal(err)
				}
				return
			}
			if err := v.check(key); (err == nil) != tt.accept {
				t.Errorf("check = %v, want accepted %v", err, tt.accept)
			}
		})
	}
}

func TestKnownHostsNamesBadLine(t *testing.T) {
	key, _ := testKey(t, 0)
	for _, bad := range []string{"h1", "h1 ssh-ed25519", "h1 ssh-ed25519 !!!", "@odd h1 " + authorizedLine(key), "|2|a|b " + authorizedLine(key), "|1|!|b " + authorizedLine(key)} {
		_, err := parseKnownHosts("# first\n" + bad + "\n")
		if err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: error %v does not name line 2", bad, err)
		}
	}
}

func TestPinsAndAlgorithms(t *testing.T) {
	key, _ := testKey(t, 0)
	other, _ := testKey(t, 1)
	for _, pin := range []string{authorizedLine(key), authorizedLine(key) + " root@h1", ssh.FingerprintSHA256(key), "# c\n" + authorizedLine(other) + "\n" + authorizedLine(key)} {
		v, err := newVerifier(Target{Host: "h1", HostKey: pin})
		if err != nil {
			t.Fatalf("%q: %v", pin, err)
		}
		if err := v.check(key); err != nil {
			t.Errorf("%q: %v", pin, err)
		}
	}
	v, err := newVerifier(Target{Host: "h1", HostKey: authorizedLine(key)})
	if err != nil {
		t.Fatal(err)
	}
	if got := v.algorithms(); len(got) != 1 || got[0] != ssh.KeyAlgoED25519 {
		t.Errorf("algorithms = %v, want only the pinned key's type", got)
	}
	err = v.check(other)
	for _, want := range []string{ssh.FingerprintSHA256(key), ssh.FingerprintSHA256(other)} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("mismatch %v does not show %s", err, want)
		}
	}
	for _, bad := range []string{"SHA256:short", "ssh-ed25519", "/etc/ssh/ssh_host_ed25519_key.pub"} {
		if _, err := newVerifier(Target{Host: "h1", HostKey: bad}); err == nil {
			t.Errorf("pin %q was accepted", bad)
		}
	}
}

// TestWildcardAgainstRecursion compares with the obvious definition.
func TestWildcardAgainstRecursion(t *testing.T) {
	var slow func(p, s string) bool
	slow = func(p, s string) bool {
		switch {
		case p == "":
			return s == ""
		case p[0] == '*':
			return slow(p[1:], s) || s != "" && slow(p, s[1:])
		case s == "":
			return false
		case p[0] == '?' || p[0] == s[0]:
			return slow(p[1:], s[1:])
		}
		return false
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.StringOfN(rapid.SampledFrom([]rune("ab*?")), 0, 8, -1).Draw(t, "pattern")
		s := rapid.StringOfN(rapid.SampledFrom([]rune("ab")), 0, 10, -1).Draw(t, "name")
		if got, want := wildcard(p, s), slow(p, s); got != want {
			t.Fatalf("wildcard(%q, %q) = %v", p, s, got)
		}
	})
}

func FuzzKnownHosts(f *testing.F) {
	key, _ := testKey(f, 0)
	f.Add("h1 "+authorizedLine(key), "h1")
	f.Add(knownhosts.HashHostname("h1")+" "+authorizedLine(key), "h1")
	f.Add("@cert-authority *.x "+authorizedLine(key)+"\n@revoked * "+authorizedLine(key), "a.x")
	f.Fuzz(func(t *testing.T, text, host string) {
		v, err := newVerifier(Target{Host: host, KnownHosts: text})
		if err != nil {
			return
		}
		if err := v.check(key); err == nil && !strings.Contains(text, strings.Fields(authorizedLine(key))[1]) {
			t.Fatalf("accepted a key that is not in %q", text)
		}
		_ = v.algorithms()
	})
}
