package ssh_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"

	xssh "golang.org/x/crypto/ssh"

	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh/sshtest"
)

func TestBastions(t *testing.T) {
	b1, b2, end := sshtest.New(t, nil), sshtest.New(t, nil), sshtest.New(t, handler)
	hop := func(s *sshtest.Server) ssh.Hop {
		return ssh.Hop{Host: s.Host(), Port: s.Port(), User: "jump", HostKey: s.HostKey()}
	}
	g := end.Target()
	g.Bastions = []ssh.Hop{hop(b1), hop(b2)}
	p := newPool(t, ssh.Options{})
	for range 2 {
		c, err := p.Get(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := c.Run(t.Context(), ssh.Cmd{Argv: []string{"echo", "far"}}); err != nil || string(res.Stdout) != "far\n" {
			t.Fatalf("%q %v", res.Stdout, err)
		}
	}
	for i, s := range []*sshtest.Server{b1, b2, end} {
		if n := s.Accepted(); n != 1 {
			t.Errorf("hop %d: %d connections, want 1", i, n)
		}
	}
	b2.RotateHostKey()
	b2.DropAll()
	_, err := p.Get(t.Context(), g)
	waitFor(t, func() bool { _, err = p.Get(t.Context(), g); return err != nil })
	var e *ssh.Error
	if !errors.Is(err, ssh.ErrHostKey) || !strings.Contains(err.Error(), "bastion 2 of test") || !errors.As(err, &e) || e.Attribute != "ssh.bastions[1].host_key" {
		t.Errorf("got %v", err)
	}
	b1.RotateHostKey()
	b1.DropAll()
	waitFor(t, func() bool {
		_, err = p.Get(t.Context(), g)
		return err != nil && strings.Contains(err.Error(), "bastion 1 of test")
	})
}

// TestHostCertificate: a certificate authority in known_hosts vouches for hosts, and only for those that it signed.
func TestHostCertificate(t *testing.T) {
	signer := func() xssh.Signer {
		_, priv, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		s, err := xssh.NewSignerFromKey(priv)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ca, host := signer(), signer()
	s := sshtest.New(t, handler)
	certified := func(principal string) xssh.Signer {
		cert := &xssh.Certificate{Key: host.PublicKey(), CertType: xssh.HostCert, ValidPrincipals: []string{principal}, ValidBefore: xssh.CertTimeInfinity}
		if err := cert.SignCert(rand.Reader, ca); err != nil {
			t.Fatal(err)
		}
		c, err := xssh.NewCertSigner(cert, host)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	line := func(k xssh.PublicKey) string {
		return fmt.Sprintf("@cert-authority [127.0.0.*]:%d %s", s.Port(), xssh.MarshalAuthorizedKey(k))
	}
	for _, tt := range []struct {
		name  string
		key   xssh.Signer
		known string
		ok    bool
	}{
		{"signed", certified("127.0.0.1"), line(ca.PublicKey()), true},
		{"for another host", certified("192.0.2.1"), line(ca.PublicKey()), false},
		{"by another authority", certified("127.0.0.1"), line(signer().PublicKey()), false},
		{"revoked", certified("127.0.0.1"), line(ca.PublicKey()) + "@revoked * " + string(xssh.MarshalAuthorizedKey(host.PublicKey())), false},
	} {
		s.SetHostKeys(tt.key)
		g := s.Target()
		g.HostKey, g.KnownHosts = "", tt.known
		err := conn(t, g).Connect(t.Context())
		if tt.ok && err != nil || !tt.ok && !errors.Is(err, ssh.ErrHostKey) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestPinChoosesTheKey: a host with several keys shows the one that is known.
func TestPinChoosesTheKey(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ecSigner, err := xssh.NewSignerFromKey(ec)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	edSigner, err := xssh.NewSignerFromKey(ed)
	if err != nil {
		t.Fatal(err)
	}
	s := sshtest.New(t, handler)
	s.SetHostKeys(ecSigner, edSigner)
	for _, k := range []xssh.Signer{ecSigner, edSigner} {
		g := s.Target()
		g.HostKey = string(xssh.MarshalAuthorizedKey(k.PublicKey()))
		if err := conn(t, g).Connect(t.Context()); err != nil {
			t.Errorf("%s: %v", k.PublicKey().Type(), err)
		}
	}
	g := s.Target()
	g.HostKey = xssh.FingerprintSHA256(edSigner.PublicKey())
	if err := conn(t, g).Connect(t.Context()); err != nil {
		t.Errorf("by fingerprint: %v", err)
	}
}

func lockedKey(t *testing.T) string {
	t.Helper()
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := xssh.MarshalPrivateKeyWithPassphrase(priv, "", []byte("phrase"))
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block))
}

func TestConfigErrors(t *testing.T) {
	s := sshtest.New(t, nil)
	locked := lockedKey(t)
	tests := []struct {
		name, want string
		change     func(*ssh.Target)
	}{
		{"no key", "private key is empty", func(g *ssh.Target) { g.PrivateKey = "" }},
		{"public key", "without .pub", func(g *ssh.Target) { g.PrivateKey = ssh.Secret(s.HostKey()) }},
		{"path", "not its path", func(g *ssh.Target) { g.PrivateKey = "/home/u/.ssh/id_ed25519" }},
		{"passphrase", "passphrase", func(g *ssh.Target) { g.PrivateKey = ssh.Secret(locked) }},
		{"damaged", "damaged", func(g *ssh.Target) {
			g.PrivateKey = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"
		}},
		{"no host", "host is empty", func(g *ssh.Target) { g.Host = "" }},
		{"no user", "user is empty", func(g *ssh.Target) { g.User = "" }},
		{"port", "out of range", func(g *ssh.Target) { g.Port = 70000 }},
		{"become", "unknown", func(g *ssh.Target) { g.Become.Method = "su" }},
		{"known hosts", "line 1", func(g *ssh.Target) { g.HostKey, g.KnownHosts = "", "x y" }},
		{"bastion", "bastion 1 of test", func(g *ssh.Target) { g.Bastions = []ssh.Hop{{User: "x"}} }},
	}
	for _, tt := range tests {
		g := s.Target()
		tt.change(&g)
		_, err := newPool(t, ssh.Options{}).Conn(g)
		if !errors.Is(err, ssh.ErrConfig) || !strings.Contains(err.Error(), tt.want) || ssh.Retryable(err) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	if s.Accepted() != 0 {
		t.Error("a wrong configuration was dialled")
	}
}
