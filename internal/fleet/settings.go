package fleet

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

// ErrNotKnownYet says that a value of the provider block will be known only during apply.
var ErrNotKnownYet = errors.New("not known before apply")

// Settings are the provider block in plain Go.
type Settings struct {
	// Fleet is the ownership domain that everything installed carries.
	Fleet string
	// KnownHosts is text in known_hosts format, shared by all hosts; may be empty.
	KnownHosts string
	// ConnectTimeout bounds the set-up of one SSH hop; 0 means the default of package ssh.
	ConnectTimeout time.Duration
	// Profiles are the ways to log in, by name.
	Profiles map[string]Profile
	// Unknown names the attributes of the provider block that are not known yet, such as "ssh_profiles".
	Unknown []string
}

// Profile is one way to log in.
type Profile struct {
	User       string
	PrivateKey ssh.Secret
	Bastions   []ssh.Hop
	Become     ssh.Become
	// Unknown names the profile's attributes that are not known yet, such as "private_key".
	Unknown []string
}

// Secrets returns every secret of the settings.
func (s Settings) Secrets() []ssh.Secret {
	var out []ssh.Secret
	add := func(v ssh.Secret) {
		if v != "" {
			out = append(out, v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Profiles)) {
		p := s.Profiles[name]
		add(p.PrivateKey)
		add(p.Become.Password)
		for _, b := range p.Bastions {
			add(b.PrivateKey)
		}
	}
	return out
}

// ProfileError says that a node's SSH profile cannot be used.
type ProfileError struct {
	Profile string
	Known   []string // profiles that the provider block has
	Unknown []string // attributes that are not known yet; then errors.Is(err, ErrNotKnownYet)
}

// Error implements error.
func (e *ProfileError) Error() string {
	if len(e.Unknown) > 0 {
		return fmt.Sprintf("ssh_profiles[%q] cannot be used yet: %s %s", e.Profile, strings.Join(e.Unknown, ", "), ErrNotKnownYet)
	}
	if len(e.Known) == 0 {
		return fmt.Sprintf("ssh_profiles has no entry %q: it is empty", e.Profile)
	}
	return fmt.Sprintf("ssh_profiles has no entry %q; it has %s", e.Profile, strings.Join(e.Known, ", "))
}

// Is implements the protocol of errors.Is.
func (e *ProfileError) Is(target error) bool { return target == ErrNotKnownYet && len(e.Unknown) > 0 }

// Target says how to reach c. Errors are of type [*ProfileError].
func (s Settings) Target(c Coordinates) (ssh.Target, error) {
	p, ok := s.Profiles[c.Profile]
	if !ok {
		if len(s.Unknown) > 0 {
			return ssh.Target{}, &ProfileError{Profile: c.Profile, Unknown: s.Unknown}
		}
		return ssh.Target{}, &ProfileError{Profile: c.Profile, Known: slices.Sorted(maps.Keys(s.Profiles))}
	}
	// What is not known yet matters only if it would be used: a pinned host key makes known_hosts irrelevant.
	unknown := slices.Clone(p.Unknown)
	for _, u := range s.Unknown {
		if u != "ssh.known_hosts" || c.HostKey == "" {
			unknown = append(unknown, u)
		}
	}
	if len(unknown) > 0 {
		return ssh.Target{}, &ProfileError{Profile: c.Profile, Unknown: unknown}
	}
	return ssh.Target{
		Name: c.Name, Host: c.Host, Port: c.Port, User: p.User, PrivateKey: p.PrivateKey, HostKey: c.HostKey,
		KnownHosts: s.KnownHosts, Bastions: p.Bastions, Become: p.Become, ConnectTimeout: s.ConnectTimeout,
	}, nil
}
