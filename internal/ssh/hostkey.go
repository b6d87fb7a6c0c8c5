package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// keyTypes are the host key types accepted, in the order in which they are asked for when the pin does not say.
var keyTypes = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA,
	ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256,
}

var certTypes = []string{
	ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01, ssh.CertAlgoECDSA521v01,
	ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01,
}

// verifier decides about the key that a host presents. It is built from configuration only.
type verifier struct {
	attr         string // where the expectation is written
	pin          string // where a single host key is written
	addr         string
	pins         []ssh.PublicKey
	fingerprints []string
	cas          []ssh.PublicKey
	revoked      []ssh.PublicKey
}

func newVerifier(t Target) (*verifier, error) {
	v := &verifier{attr: t.at("host_key"), pin: t.at("host_key"), addr: t.Addr()}
	if strings.TrimSpace(t.HostKey) != "" {
		return v, v.addPins(t.HostKey)
	}
	entries, err := parseKnownHosts(t.KnownHosts)
	if err != nil {
		return nil, err
	}
	if len(entries) > 0 {
		v.attr = "ssh.known_hosts" // a bastion without a key of its own uses the same text
	}
	for _, e := range entries {
		if !e.matches(v.addr) {
			continue
		}
		switch e.marker {
		case "cert-authority":
			v.cas = append(v.cas, e.key)
		case "revoked":
			v.revoked = append(v.revoked, e.key)
		default:
			v.pins = append(v.pins, e.key)
		}
	}
	return v, nil
}

// addPins reads lines of "SHA256:…" or "type base64 [comment]"; the type may be left out of a known_hosts line's front.
func (v *verifier) addPins(text string) error {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "SHA256:"):
			fp := strings.TrimRight(strings.Fields(line)[0], "=")
			if len(fp) != len("SHA256:")+43 {
				return fmt.Errorf("fingerprint %q is not SHA256: and 43 characters of base64", fp)
			}
			v.fingerprints = append(v.fingerprints, fp)
		default:
			key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
			if err != nil {
				return fmt.Errorf("host key %q is neither \"ssh-ed25519 AAAA…\" nor \"SHA256:…\": %w", shorten(line, 40), err)
			}
			v.pins = append(v.pins, key)
		}
	}
	return nil
}

func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}

// algorithms are the host key algorithms to offer, so that the host presents a key of a type that is known.
func (v *verifier) algorithms() []string {
	var types []string
	if len(v.cas) > 0 {
		types = append(types, certTypes...)
	}
	for _, k := range v.pins {
		types = append(types, k.Type())
	}
	if len(v.fingerprints) > 0 || len(types) == 0 {
		types = append(types, keyTypes...)
	}
	var out []string
	for _, t := range types {
		// An RSA key signs with SHA-2; ssh-rsa as an algorithm means SHA-1.
		algos := []string{t}
		if t == ssh.KeyAlgoRSA {
			algos = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
		}
		for _, a := range algos {
			if !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out
}

// keyError is the refusal of a host key.
type keyError struct {
	text, fix, attr string
}

func (e *keyError) Error() string { return e.text }

// check implements the decision of ssh.HostKeyCallback.
func (v *verifier) check(key ssh.PublicKey) error {
	if cert, ok := key.(*ssh.Certificate); ok {
		return v.checkCert(cert)
	}
	got := ssh.FingerprintSHA256(key)
	blob := key.Marshal()
	for _, r := range v.revoked {
		if bytes.Equal(r.Marshal(), blob) {
			return &keyError{text: fmt.Sprintf("host presented %s %s, which is marked @revoked", key.Type(), got), attr: v.attr,
				fix: "Replace the host's key, or find out who answers at this address"}
		}
	}
	for _, p := range v.pins {
		if bytes.Equal(p.Marshal(), blob) {
			return nil
		}
	}
	if slices.Contains(v.fingerprints, got) {
		return nil
	}
	want := append([]string(nil), v.fingerprints...)
	for _, p := range v.pins {
		want = append(want, p.Type()+" "+ssh.FingerprintSHA256(p))
	}
	if len(want) > 0 {
		line := authorizedLine(key)
		if v.attr != v.pin {
			line = knownhosts.Line([]string{v.addr}, key)
		}
		return &keyError{
			text: fmt.Sprintf("expected %s, but the host presented %s %s", strings.Join(want, " or "), key.Type(), got), attr: v.attr,
			fix: fmt.Sprintf("If the host was reinstalled, change %s to %q; otherwise somebody else answers at this address", v.attr, line),
		}
	}
	return &keyError{
		text: fmt.Sprintf("the host's key is not known; it presented %s %s", key.Type(), got), attr: v.pin,
		fix: fmt.Sprintf("Compare the fingerprint with the host's own (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), then set host_key = %q in its ssh block, or add %q to ssh.known_hosts",
			authorizedLine(key), knownhosts.Line([]string{v.addr}, key)),
	}
}

func (v *verifier) checkCert(cert *ssh.Certificate) error {
	checker := ssh.CertChecker{
		IsHostAuthority: func(auth ssh.PublicKey, _ string) bool {
			return slices.ContainsFunc(v.cas, func(ca ssh.PublicKey) bool { return bytes.Equal(ca.Marshal(), auth.Marshal()) })
		},
		IsRevoked: func(c *ssh.Certificate) bool {
			return slices.ContainsFunc(v.revoked, func(r ssh.PublicKey) bool {
				return bytes.Equal(r.Marshal(), c.Key.Marshal()) || bytes.Equal(r.Marshal(), c.SignatureKey.Marshal())
			})
		},
	}
	if err := checker.CheckHostKey(v.addr, &net.TCPAddr{}, cert); err != nil {
		return &keyError{text: fmt.Sprintf("host certificate signed by %s refused: %s", ssh.FingerprintSHA256(cert.SignatureKey), err), attr: v.attr,
			fix: "Check the certificate's principals and validity, and the @cert-authority line"}
	}
	return nil
}

func authorizedLine(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// parsePrivateKey reads a private key and says in plain words why it cannot.
func parsePrivateKey(pem Secret) (ssh.Signer, error) {
	if strings.TrimSpace(pem.Reveal()) == "" {
		return nil, errors.New("private key is empty; set private_key to the content of the key file (or MOAI_SSH_PRIVATE_KEY)")
	}
	signer, err := ssh.ParsePrivateKey([]byte(pem.Reveal()))
	var locked *ssh.PassphraseMissingError
	switch {
	case err == nil:
		return signer, nil
	case errors.As(err, &locked):
		return nil, errors.New("private key is protected by a passphrase; nobody can be asked for it here, so give a key without one (ssh-keygen -p removes it)")
	case strings.Contains(pem.Reveal(), "PUBLIC KEY") || strings.HasPrefix(pem.Reveal(), "ssh-"):
		return nil, errors.New("private key is a public key; give the file without .pub")
	case !strings.Contains(pem.Reveal(), "-----BEGIN"):
		return nil, errors.New("private key is not PEM; give the file's content, not its path")
	}
	return nil, errors.New("private key cannot be read: it is damaged or of an unsupported kind")
}
