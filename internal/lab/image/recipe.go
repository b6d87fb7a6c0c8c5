// Package image builds the root filesystem that all hosts of all labs share as their lower layer, once for each
// recipe. The recipe is pure; building it runs mmdebstrap.
package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// File is a file that the recipe writes over what the packages brought.
type File struct {
	Path    string
	Content string
	Mode    uint32
}

// Recipe says what the image holds. Its hash names the image: another recipe is another image.
type Recipe struct {
	Suite    string
	Arch     string // as Go names it; part of the hash only
	Packages []string
	Exclude  []string // paths that dpkg does not unpack
	Files    []File
	Remove   []string // glob patterns
	Mask     []string // units that never run
}

// DefaultRecipe is a small Debian server as a provider would meet it: systemd, sshd, sudo, the usual network tools.
// There is no Python and no curl, so that relying on either on a host shows.
func DefaultRecipe(suite, arch string) Recipe {
	return Recipe{
		Suite: suite,
		Arch:  arch,
		Packages: []string{
			"ca-certificates", "dbus", "iproute2", "kmod", "libpam-systemd", "nftables", "openssh-server",
			"pciutils", "procps", "sudo", "systemd", "systemd-sysv",
		},
		Exclude: []string{"/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*"},
		Files: []File{
			// Empty, not absent: each host gets its own.
			{"/etc/machine-id", "", 0o444},
			{"/etc/ssh/sshd_config.d/site.conf", "PermitRootLogin no\nPasswordAuthentication no\nUseDNS no\n" +
				"HostKey /etc/ssh/ssh_host_ed25519_key\n", 0o644},
		},
		Remove: []string{"/etc/ssh/ssh_host_*", "/etc/hostname", "/etc/resolv.conf", "/var/lib/apt/lists/*",
			"/var/cache/apt/*.bin", "/etc/apt/apt.conf.d/99mmdebstrap", "/var/log/*.log", "/var/log/apt/*"},
		// What would run at its own time of day, or wants a terminal.
		Mask: []string{"apt-daily.timer", "apt-daily-upgrade.timer", "console-getty.service", "dpkg-db-backup.timer",
			"e2scrub_all.timer", "fstrim.timer"},
	}
}

// ID is the recipe's name: its suite and a hash of all that it says.
func (r Recipe) ID() string {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and integers only
	}
	sum := sha256.Sum256(b)
	return r.Suite + "-" + hex.EncodeToString(sum[:6])
}

// Command renders the mmdebstrap command that makes target. sources are files of the machine's own package sources;
// options are apt options in the form of apt.conf.
func (r Recipe) Command(target string, sources, options []string) []string {
	args := []string{"mmdebstrap", "--quiet", "--variant=minbase", "--include=" + strings.Join(r.Packages, ",")}
	for _, p := range r.Exclude {
		args = append(args, "--dpkgopt=path-exclude="+p)
	}
	args = append(args, "--dpkgopt=force-unsafe-io") // a build that was cut off is thrown away anyway
	for _, o := range options {
		args = append(args, "--aptopt="+o)
	}
	return append(append(args, r.Suite, target), sources...)
}

// Suite decides which Debian release the image is: the machine's own if that is Debian, else bookworm. osRelease is
// the text of /etc/os-release.
func Suite(osRelease string) string {
	fields := map[string]string{}
	for line := range strings.Lines(osRelease) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			fields[key] = strings.Trim(value, `"'`)
		}
	}
	if fields["ID"] == "debian" && fields["VERSION_CODENAME"] != "" {
		return fields["VERSION_CODENAME"]
	}
	return "bookworm"
}

// Sources picks, from the machine's package source files (text by path), those that can feed the suite: files that
// name it and belong to the distribution. None means that mmdebstrap takes its own default.
func Sources(files map[string]string, suite string) []string {
	var picked []string
	for name, text := range files {
		switch path.Base(name) {
		case "debian.sources", "sources.list":
		default:
			continue
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			if (strings.HasPrefix(line, "Suites:") || strings.HasPrefix(line, "deb ")) && slices.Contains(strings.Fields(line), suite) {
				picked = append(picked, name)
				break
			}
		}
	}
	slices.Sort(picked)
	return picked
}

// ProxyOptions picks, from the output of `apt-config dump`, what the machine says about proxies: mmdebstrap does not
// look there itself.
func ProxyOptions(dump string) []string {
	var options []string
	for line := range strings.Lines(dump) {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, " ")
		if ok && strings.HasPrefix(key, "Acquire::http") && strings.HasSuffix(key, "::Proxy") && value != `"";` {
			options = append(options, fmt.Sprintf("%s %s", key, value))
		}
	}
	return options
}
