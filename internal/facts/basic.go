package facts

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ParseOSRelease reads /etc/os-release: shell assignments with optional quotes.
func ParseOSRelease(text string) OS {
	var os OS
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(key, "#") {
			continue
		}
		value = unquote(value)
		switch key {
		case "ID":
			os.ID = value
		case "VERSION_ID":
			os.VersionID = value
		case "PRETTY_NAME":
			os.PrettyName = value
		}
	}
	return os
}

// unquote takes shell quotes off a value of os-release, which has no expansions.
func unquote(s string) string {
	if len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '"' && s[0] != '\'' {
		return s
	}
	inner := s[1 : len(s)-1]
	if s[0] == '\'' {
		return inner
	}
	var b strings.Builder
	for i := 0; i < len(inner); i++ {
		if inner[i] == '\\' && i+1 < len(inner) {
			i++
		}
		b.WriteByte(inner[i])
	}
	return b.String()
}

// ParseUname reads "uname -srm".
func ParseUname(text string) (kernel, arch string, err error) {
	f := strings.Fields(text)
	if len(f) != 3 {
		return "", "", fmt.Errorf("uname -srm says %.80q", text)
	}
	switch f[2] {
	case "x86_64":
		return f[1], "amd64", nil
	case "aarch64":
		return f[1], "arm64", nil
	}
	return f[1], f[2], nil
}

// ParseMeminfo returns MemTotal of /proc/meminfo in bytes.
func ParseMeminfo(text string) (int64, error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "MemTotal:" {
			continue
		}
		kib, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil || kib < 0 || kib > 1<<50 {
			return 0, fmt.Errorf("MemTotal of /proc/meminfo is %.40q", f[1])
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("/proc/meminfo has no MemTotal")
}

// ParseNproc reads "nproc".
func ParseNproc(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 {
		return 0, fmt.Errorf("nproc says %.80q", text)
	}
	return n, nil
}

// ParseSystemdVersion reads the first line of "systemctl --version".
func ParseSystemdVersion(text string) (int, error) {
	f := strings.Fields(text)
	if len(f) < 2 || f[0] != "systemd" {
		return 0, fmt.Errorf("systemctl --version says %.80q", text)
	}
	n, err := strconv.Atoi(leadingDigits(f[1]))
	if err != nil {
		return 0, fmt.Errorf("systemctl --version says %.80q", text)
	}
	return n, nil
}

func leadingDigits(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return s[:i]
		}
	}
	return s
}

// ParseIPAddr reads "ip -j addr": the interfaces but loopback, with the addresses that others can reach.
func ParseIPAddr(text string) ([]NIC, error) {
	body, err := jsonPart(text)
	if err != nil {
		return nil, fmt.Errorf("ip -j addr: %w", err)
	}
	var links []struct {
		Name  string   `json:"ifname"`
		MTU   int      `json:"mtu"`
		Flags []string `json:"flags"`
		Type  string   `json:"link_type"`
		Addrs []struct {
			Local  string `json:"local"`
			Prefix int    `json:"prefixlen"`
			Scope  string `json:"scope"`
		} `json:"addr_info"`
	}
	if err := json.Unmarshal(body, &links); err != nil {
		return nil, fmt.Errorf("ip -j addr: %w", err)
	}
	var out []NIC
	for _, l := range links {
		if l.Name == "" || l.Name == "lo" || l.Type == "loopback" {
			continue
		}
		n := NIC{Name: l.Name, MTU: l.MTU}
		for _, a := range l.Addrs {
			addr, err := netip.ParseAddr(a.Local)
			if err != nil || a.Scope == "link" || a.Scope == "host" || addr.IsLinkLocalUnicast() {
				continue
			}
			n.Addresses = append(n.Addresses, addr.String()+"/"+strconv.Itoa(a.Prefix))
		}
		out = append(out, n)
	}
	return out, nil
}

// ParseSpeeds reads lines "name speed" from /sys/class/net/*/speed, in Mbit/s. Links that are down say -1 or nothing.
func ParseSpeeds(text string) map[string]int {
	out := map[string]int{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 2 {
			continue
		}
		if n, err := strconv.Atoi(f[1]); err == nil && n > 0 {
			out[f[0]] = n
		}
	}
	return out
}

// jsonPart returns the JSON value in a text that may have words before or after it: the first { or [ from which one
// value can be read.
func jsonPart(text string) (json.RawMessage, error) {
	var first error
	for at := 0; at < len(text); {
		i := strings.IndexAny(text[at:], "{[")
		if i < 0 {
			break
		}
		at += i
		var v json.RawMessage
		err := json.NewDecoder(strings.NewReader(text[at:])).Decode(&v)
		if err == nil {
			return v, nil
		}
		if first == nil {
			first = err
		}
		// JSON stands at the start of a line; a bracket inside a sentence is not tried as one.
		nl := strings.IndexByte(text[at:], '\n')
		if nl < 0 {
			break
		}
		at += nl + 1
	}
	if first == nil {
		first = fmt.Errorf("no JSON in %.80q", text)
	}
	return nil, first
}
