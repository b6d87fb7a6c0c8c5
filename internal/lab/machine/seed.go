package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/program"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/standin"
)

// LabBinary is where a host has moaid-lab: the reference engine and the accelerator stand-ins.
const LabBinary = "/usr/local/bin/moaid-lab"

// SeedFile is a file that makes a host itself.
type SeedFile struct {
	Path    string
	Content string
	Mode    fs.FileMode
	Owned   bool // by the host's user instead of root
}

// SeedFiles lists the files that make a host itself.
func SeedFiles(h plan.Host, k Keys) ([]SeedFile, error) {
	home := "/home/" + h.User
	files := []SeedFile{
		{"/etc/hostname", h.Name + "\n", 0o644, false},
		// No other host's name: a fleet's hosts need not know each other by name.
		{"/etc/hosts", "127.0.0.1 localhost\n127.0.1.1 " + h.Name + "\n", 0o644, false},
		{"/etc/machine-id", h.MachineID() + "\n", 0o444, false},
		{"/etc/ssh/ssh_host_ed25519_key", string(k.Host), 0o600, false},
		{"/etc/ssh/ssh_host_ed25519_key.pub", k.HostKey + " root@" + h.Name + "\n", 0o644, false},
		{"/etc/sudoers.d/" + h.User, h.User + " ALL=(ALL) NOPASSWD:ALL\n", 0o440, false},
		{home + "/.ssh/authorized_keys", authorized(k.User.PublicKey()) + " " + h.User + "\n", 0o600, true},
	}
	if h.Profile == "" {
		return files, nil
	}
	hardware, err := json.MarshalIndent(standin.New(h.Profile, h.Name), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("hardware file: %w", err)
	}
	return append(files, SeedFile{standin.HardwareFile, string(hardware) + "\n", 0o644, false}), nil
}

// SeedLinks lists the stand-ins of a host: links to moaid-lab, which goes by the name it is called by.
func SeedLinks(profile string) []string {
	switch {
	case strings.HasPrefix(profile, "h100"):
		return []string{"/usr/bin/nvidia-smi", "/usr/bin/lspci"}
	case strings.HasPrefix(profile, "mi300"):
		return []string{"/usr/bin/amd-smi", "/opt/rocm/bin/amd-smi", "/usr/bin/lspci"}
	}
	return nil
}

// seed writes what makes the host itself into its root.
func (m *Machine) seed(ctx context.Context) error {
	inside := func(args ...string) error {
		_, err := program.Run(ctx, program.Command{Args: append([]string{"chroot", m.Root()}, args...)})
		return err
	}
	if err := inside("useradd", "--create-home", "--shell", "/bin/bash", m.Host.User); err != nil {
		return err
	}
	if strings.HasPrefix(m.Host.Profile, "mi300") { // who may open the accelerators' device nodes; the user is not in it
		if err := inside("groupadd", "--system", "render"); err != nil {
			return err
		}
	}
	uid, gid, err := m.ids(m.Host.User)
	if err != nil {
		return err
	}
	files, err := SeedFiles(m.Host, m.Keys)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := m.write(f, uid, gid); err != nil {
			return err
		}
	}
	for _, link := range SeedLinks(m.Host.Profile) {
		name := filepath.Join(m.Root(), link)
		if _, err := os.Lstat(name); err == nil { // the real tool of a package
			if err := inside("dpkg-divert", "--quiet", "--local", "--rename", "--divert", link+".real", link); err != nil {
				return err
			}
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(LabBinary, name); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) write(f SeedFile, uid, gid int) error {
	name := filepath.Join(m.Root(), f.Path)
	dir := filepath.Dir(name)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		mode := fs.FileMode(0o755)
		if f.Owned {
			mode = 0o700
		}
		if err := os.MkdirAll(dir, mode); err != nil {
			return err
		}
		if f.Owned {
			if err := os.Chown(dir, uid, gid); err != nil {
				return err
			}
		}
	}
	// Replaced, never written through: a file of the image may be read-only, or a link out of the root.
	if err := os.RemoveAll(name); err != nil {
		return err
	}
	if err := os.WriteFile(name, []byte(f.Content), f.Mode); err != nil {
		return err
	}
	if err := os.Chmod(name, f.Mode); err != nil {
		return err
	}
	if f.Owned {
		return os.Chown(name, uid, gid)
	}
	return nil
}

// ids looks a user up in the host's own account database.
func (m *Machine) ids(user string) (uid, gid int, err error) {
	text, err := os.ReadFile(filepath.Join(m.Root(), "etc/passwd"))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(line, ":")
		if len(f) < 4 || f[0] != user {
			continue
		}
		uid, uerr := strconv.Atoi(f[2])
		gid, gerr := strconv.Atoi(f[3])
		return uid, gid, errors.Join(uerr, gerr)
	}
	return 0, 0, fmt.Errorf("no user %s in the host's /etc/passwd", user)
}

// Install puts the moaid-lab binary into the host, which may be running, when its content differs. It reports whether
// it did.
func (m *Machine) Install(binary []byte) (bool, error) {
	name := filepath.Join(m.Root(), LabBinary)
	if have, err := os.ReadFile(name); err == nil && string(have) == string(binary) {
		return false, nil
	}
	if err := os.WriteFile(name+".new", binary, 0o755); err != nil {
		return false, fmt.Errorf("host %s: install moaid-lab: %w", m.Host.Name, err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		return false, fmt.Errorf("host %s: install moaid-lab: %w", m.Host.Name, err)
	}
	return true, nil
}
