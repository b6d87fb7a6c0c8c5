package ssh

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Secret is a string that never prints itself. [Secret.Reveal] is the one way out.
type Secret string

const secretText = "[secret]"

// String implements fmt.Stringer.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return secretText
}

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return s.String() }

// MarshalText keeps the secret out of JSON and slog output.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// Ways to become root.
const (
	BecomeAuto = ""     // nothing for root, sudo for everybody else
	BecomeNone = "none" // never: commands that need root fail for other users
	BecomeSudo = "sudo" // as BecomeAuto, said explicitly
)

// Become says how commands that need root get it.
type Become struct {
	Method   string
	Password Secret // for sudo; empty means that sudo must not ask
}

// Hop is one bastion on the way to a target, with its own user, key and host key.
type Hop struct {
	Host       string
	Port       int // 0 means 22
	User       string
	PrivateKey Secret // empty means the target's key
	HostKey    string // as in Target
	KnownHosts string // empty means the target's
}

// Target is one machine and everything needed to reach it. Two equal targets share one connection.
type Target struct {
	Name       string // for messages only
	Host       string // name or address, without port
	Port       int    // 0 means 22
	User       string
	PrivateKey Secret // PEM or OpenSSH format, without passphrase
	HostKey    string // lines "ssh-ed25519 AAAA…" or "SHA256:…"; wins over KnownHosts
	KnownHosts string // text in known_hosts format
	Bastions   []Hop  // in the order in which they are passed
	Become     Become

	// ConnectTimeout bounds resolving, connecting, handshake and authentication of one hop; 0 means 10 s.
	ConnectTimeout time.Duration

	// hop is the number of the bastion that this target is, from 1; 0 for a target of its own.
	hop int
}

// at is the attribute that holds one of the target's settings.
func (t Target) at(name string) string {
	if t.hop > 0 {
		return fmt.Sprintf("ssh.bastions[%d].%s", t.hop-1, name)
	}
	return "ssh." + name
}

// DefaultConnectTimeout bounds the set-up of one hop: a TCP retransmission or two and a slow handshake.
const DefaultConnectTimeout = 10 * time.Second

func port(p int) int {
	if p == 0 {
		return 22
	}
	return p
}

// Addr is host:port as dialled.
func (t Target) Addr() string { return net.JoinHostPort(t.Host, strconv.Itoa(port(t.Port))) }

// String is user@host:port, with the name in front when there is one. It holds no secret.
func (t Target) String() string {
	s := t.User + "@" + t.Addr()
	if t.Name != "" {
		return t.Name + " (" + s + ")"
	}
	return s
}

// GoString keeps secrets out of %#v.
func (t Target) GoString() string { return "ssh.Target{" + t.String() + "}" }

func (t Target) timeout() time.Duration {
	if t.ConnectTimeout <= 0 {
		return DefaultConnectTimeout
	}
	return t.ConnectTimeout
}

// key tells targets apart. It is a hash, so that no secret is a map key that a dump would show. The name is not part
// of it: two resources for one machine share its connection.
func (t Target) key() string {
	h := sha256.New()
	w := func(parts ...string) {
		for _, p := range parts {
			_, _ = fmt.Fprintf(h, "%d:%s", len(p), p) // a hash never fails
		}
	}
	w(t.Host, strconv.Itoa(port(t.Port)), t.User, t.PrivateKey.Reveal(), t.HostKey, t.KnownHosts,
		t.Become.Method, t.Become.Password.Reveal(), strconv.Itoa(len(t.Bastions)))
	for _, b := range t.Bastions {
		w(b.Host, strconv.Itoa(port(b.Port)), b.User, b.PrivateKey.Reveal(), b.HostKey, b.KnownHosts)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// via is the target that the last bastion itself is, or false without bastions.
func (t Target) via() (Target, bool) {
	n := len(t.Bastions)
	if n == 0 {
		return Target{}, false
	}
	b := t.Bastions[n-1]
	v := Target{
		Name: fmt.Sprintf("bastion %d of %s", n, nonEmpty(t.origin(), t.Host)),
		Host: b.Host, Port: b.Port, User: nonEmpty(b.User, t.User), PrivateKey: b.PrivateKey, HostKey: b.HostKey,
		KnownHosts: b.KnownHosts, Bastions: t.Bastions[:n-1], Become: Become{Method: BecomeNone}, ConnectTimeout: t.ConnectTimeout,
		hop: n,
	}
	if v.PrivateKey == "" {
		v.PrivateKey = t.PrivateKey
	}
	if v.HostKey == "" && v.KnownHosts == "" {
		v.KnownHosts = t.KnownHosts
	}
	return v, true
}

// origin is the name of the target that the way leads to in the end.
func (t Target) origin() string {
	if t.hop > 0 {
		_, name, _ := strings.Cut(t.Name, " of ")
		return name
	}
	return t.Name
}

func nonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// Validate checks what can be checked without the network. Errors are of class [ErrConfig].
func (t Target) Validate() error {
	bad := func(attr, fix string, err error) error {
		return &Error{Class: ErrConfig, Target: t.String(), Step: StepConfig, Attribute: attr, Fix: fix, Err: err}
	}
	switch {
	case t.Host == "":
		return bad(t.at("host"), "Set the host's name or address", fmt.Errorf("host is empty"))
	case t.User == "":
		return bad(t.at("user"), "Set the user to log in as", fmt.Errorf("user is empty"))
	case port(t.Port) < 1 || port(t.Port) > 65535:
		return bad(t.at("port"), "Use a port from 1 to 65535", fmt.Errorf("port %d is out of range", t.Port))
	}
	switch t.Become.Method {
	case BecomeAuto, BecomeNone, BecomeSudo:
	default:
		return bad("become.method", `Use "sudo" or "none"`, fmt.Errorf("become method %q is unknown", t.Become.Method))
	}
	if strings.ContainsAny(t.Become.Password.Reveal(), "\r\n\x00") {
		return bad("become.password", "Give the password alone, as with trimspace(…)", errors.New("the password is more than one line, and the rest would become a command's input"))
	}
	if _, err := parsePrivateKey(t.PrivateKey); err != nil {
		return bad(t.at("private_key"), "", err)
	}
	if _, err := newVerifier(t); err != nil {
		return bad(t.at("host_key"), "", err)
	}
	if v, ok := t.via(); ok {
		return v.Validate()
	}
	return nil
}
