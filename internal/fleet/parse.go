package fleet

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// NameRule says in words what names look like.
const NameRule = "must be 1 to 63 of a-z, 0-9 and -, beginning with a letter or digit"

// ValidName reports whether s may name a fleet, a node or anything on one.
func ValidName(s string) bool { return nameRE.MatchString(s) }

// NamePattern is the pattern behind [ValidName], for validators of the framework.
func NamePattern() *regexp.Regexp { return nameRE }

// CoordinatesFormat is how [ParseCoordinates] wants them, for documentation and errors.
const CoordinatesFormat = "name=h100-0,host=192.0.2.11,profile=nvidia[,port=22][,host_key=ssh-ed25519 AAAA…]"

// ParseCoordinates reads an import id of a node: what is needed to reach it, as key=value by comma.
func ParseCoordinates(id string) (Coordinates, error) {
	c := Coordinates{Port: DefaultSSHPort}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(id, ",") {
		key, value, ok := strings.Cut(part, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case !ok || value == "":
			return Coordinates{}, fmt.Errorf("%q is not key=value", part)
		case seen[key]:
			return Coordinates{}, fmt.Errorf("%s is given twice", key)
		}
		seen[key] = true
		switch key {
		case "name":
			if !ValidName(value) {
				return Coordinates{}, fmt.Errorf("name %q %s", value, NameRule)
			}
			c.Name = value
		case "host":
			c.Host = value
		case "profile":
			c.Profile = value
		case "host_key":
			c.HostKey = value
		case "port":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > 65535 {
				return Coordinates{}, fmt.Errorf("port %q is not from 1 to 65535", value)
			}
			c.Port = n
		default:
			return Coordinates{}, fmt.Errorf("there is no key %q", key)
		}
	}
	if c.Name == "" || c.Host == "" || c.Profile == "" {
		return Coordinates{}, errors.New("name, host and profile are needed")
	}
	return c, nil
}

// ImportID is the inverse of [ParseCoordinates].
func (c Coordinates) ImportID() string {
	s := fmt.Sprintf("name=%s,host=%s,profile=%s", c.Name, c.Host, c.Profile)
	if p := sshPort(c.Port); p != DefaultSSHPort {
		s += fmt.Sprintf(",port=%d", p)
	}
	if c.HostKey != "" {
		s += ",host_key=" + c.HostKey
	}
	return s
}

// ParseEndpoint reads host:port.
func ParseEndpoint(s string) (Endpoint, error) {
	i := strings.LastIndexByte(s, ':')
	if i < 1 {
		return Endpoint{}, fmt.Errorf("%q is not host:port", s)
	}
	n, err := strconv.Atoi(s[i+1:])
	if err != nil || n < 1 || n > 65535 {
		return Endpoint{}, fmt.Errorf("%q has no port from 1 to 65535", s)
	}
	return Endpoint{Address: strings.TrimSuffix(strings.TrimPrefix(s[:i], "["), "]"), Port: n}, nil
}
