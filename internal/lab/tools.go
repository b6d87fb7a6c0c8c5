package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/program"
)

// packages are the Debian packages which have the programs, and files, that a lab needs.
var packages = map[string]string{
	"systemd-nspawn": "systemd-container",
	"mmdebstrap":     "mmdebstrap",
	"nft":            "nftables",
	"ip":             "iproute2",
	"ssh":            "openssh-client",
	"nsenter":        "util-linux",
	// Debian has it; elsewhere mmdebstrap needs it to trust the image's packages.
	"/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
}

// lookup finds a program in PATH, or a file by its path.
func lookup(name string) (string, error) {
	if strings.Contains(name, "/") {
		_, err := os.Stat(name)
		return name, err
	}
	return exec.LookPath(name)
}

// missingPackages lists the packages of programs and files that find does not know.
func missingPackages(find func(string) (string, error)) []string {
	var missing []string
	for prog, pkg := range packages {
		if _, err := find(prog); err != nil {
			missing = append(missing, pkg)
		}
	}
	slices.Sort(missing)
	return missing
}

// ensureTools installs what is missing, after saying so.
func ensureTools(ctx context.Context, say func(string, ...any)) error {
	missing := missingPackages(lookup)
	if len(missing) == 0 {
		return nil
	}
	list := strings.Join(missing, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return &MissingError{fmt.Sprintf("the lab needs the programs of these Debian packages: %s; there is no apt-get here to install them with", list)}
	}
	say("installing %s (apt-get)", list)
	install := program.Command{Args: append([]string{"apt-get", "-y", "-q", "--no-install-recommends", "install"}, missing...)}
	if _, err := program.Run(ctx, program.Command{Args: []string{"apt-get", "-q", "update"}}); err != nil {
		return fmt.Errorf("install %s: %w", list, err)
	}
	if _, err := program.Run(ctx, install); err != nil {
		return fmt.Errorf("install %s: %w", list, err)
	}
	if still := missingPackages(lookup); len(still) > 0 {
		return &MissingError{fmt.Sprintf("installed, but the programs of %s are not in PATH (%s is needed)", strings.Join(still, " "), "/usr/sbin")}
	}
	return nil
}
