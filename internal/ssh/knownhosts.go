package ssh

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the known_hosts format hashes host names with HMAC-SHA1
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// knownEntry is one line of a known_hosts text.
type knownEntry struct {
	line     int
	marker   string // "", "cert-authority" or "revoked"
	patterns []string
	key      ssh.PublicKey
}

// parseKnownHosts reads a text in known_hosts format: comments, markers, plain, wildcard, negated and hashed names. An
// error names the line. A key of a type that this program does not know is skipped, as OpenSSH does.
func parseKnownHosts(text string) ([]knownEntry, error) {
	var out []knownEntry
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if len(strings.Fields(line)) < 3 {
			return nil, fmt.Errorf("known_hosts line %d has no host, key type and key", n)
		}
		marker, hosts, key, _, _, err := ssh.ParseKnownHosts([]byte(line))
		if err != nil {
			if unsupportedKey(line) {
				continue
			}
			return nil, fmt.Errorf("known_hosts line %d: %w", n, err)
		}
		switch marker {
		case "", "cert-authority", "revoked":
		default:
			return nil, fmt.Errorf("known_hosts line %d: marker @%s is unknown", n, marker)
		}
		for _, h := range hosts {
			if strings.HasPrefix(h, "|") {
				if _, _, err := splitHashed(h); err != nil {
					return nil, fmt.Errorf("known_hosts line %d: %w", n, err)
				}
			}
		}
		out = append(out, knownEntry{line: n, marker: marker, patterns: hosts, key: key})
	}
	return out, nil
}

// unsupportedKey reports whether the line's key is well formed but of a type unknown here.
func unsupportedKey(line string) bool {
	f := strings.Fields(line)
	if strings.HasPrefix(f[0], "@") {
		f = f[1:]
	}
	if len(f) < 3 {
		return false
	}
	blob, err := base64.StdEncoding.DecodeString(f[2])
	if err != nil || len(blob) < 4 {
		return false
	}
	n := int(blob[0])<<24 | int(blob[1])<<16 | int(blob[2])<<8 | int(blob[3])
	if n <= 0 || n > len(blob)-4 || string(blob[4:4+n]) != f[1] {
		return false
	}
	for _, known := range append(keyTypes, certTypes...) {
		if known == f[1] {
			return false
		}
	}
	return true
}

// matches reports whether the entry is about addr (host:port).
func (e knownEntry) matches(addr string) bool {
	name := knownhosts.Normalize(addr)
	hit := false
	for _, p := range e.patterns {
		not := strings.HasPrefix(p, "!")
		p = strings.TrimPrefix(p, "!")
		if !matchName(p, name) {
			continue
		}
		if not {
			return false
		}
		hit = true
	}
	return hit
}

func matchName(pattern, name string) bool {
	if strings.HasPrefix(pattern, "|") {
		salt, want, err := splitHashed(pattern)
		if err != nil {
			return false
		}
		m := hmac.New(sha1.New, salt)
		m.Write([]byte(name))
		return hmac.Equal(m.Sum(nil), want)
	}
	return wildcard(strings.ToLower(pattern), strings.ToLower(name))
}

// splitHashed reads |1|salt|hash.
func splitHashed(s string) (salt, hash []byte, err error) {
	parts := strings.Split(s, "|")
	if len(parts) != 4 || parts[1] != "1" {
		return nil, nil, errors.New("hashed host name is not of the form |1|salt|hash")
	}
	if salt, err = base64.StdEncoding.DecodeString(parts[2]); err != nil {
		return nil, nil, fmt.Errorf("salt of hashed host name: %w", err)
	}
	if hash, err = base64.StdEncoding.DecodeString(parts[3]); err != nil {
		return nil, nil, fmt.Errorf("hashed host name: %w", err)
	}
	return salt, hash, nil
}

// wildcard matches name with a pattern of literals, * and ?. It is linear in len(pattern)*len(name).
func wildcard(pattern, name string) bool {
	p, n, star, mark := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n] && pattern[p] != '*'):
			p++
			n++
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
		case star >= 0:
			mark++
			p, n = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
