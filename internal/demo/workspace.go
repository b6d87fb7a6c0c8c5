package demo

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Address of the provider: host, namespace, type. The mirror carries it under
// both hosts, so that `source = "moai-dev/moai"` resolves in either CLI.
const (
	providerNamespace = "moai-dev"
	providerType      = "moai"
	providerVersion   = "0.0.1"
)

var registryHosts = []string{"registry.terraform.io", "registry.opentofu.org"}

// NameVariable names another run than the demo's own: the lab acceptance test
// has a lab and a state of its own, and both can be up at once.
const NameVariable = "MOAI_DEMO_NAME"

const defaultName = "demo"

// checkoutMarker is a file that only the root of a checkout has.
const checkoutMarker = "terraform-registry-manifest.json"

// Workspace is where a run builds and keeps its state: everything below
// build/NAME in the checkout, all ignored by git.
type Workspace struct {
	Repo string // root of the checkout
	Name string // letters and digits; also of its lab
}

// FindWorkspace walks up from the working directory to the checkout's root. The
// run's name is that of NameVariable, or "demo".
func FindWorkspace() (Workspace, error) {
	dir, err := os.Getwd()
	if err != nil {
		return Workspace{}, err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, checkoutMarker)); err == nil {
			return Workspace{Repo: dir, Name: cmp.Or(os.Getenv(NameVariable), defaultName)}, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return Workspace{}, errors.New("run the demo inside a checkout of terraform-provider-moai")
		}
		dir = parent
	}
}

func (w Workspace) path(parts ...string) string {
	return filepath.Join(append([]string{w.Repo, "build", w.Name}, parts...)...)
}

// labName is the lab's: the demo's is the one that `bin/lab` means by default.
func (w Workspace) labName() string {
	if w.Name == defaultName {
		return "moai"
	}
	return w.Name
}

// Config is the Terraform configuration's folder.
func (w Workspace) Config() string { return w.path("quickstart") }

// Mirror is the filesystem mirror that the provider is installed from.
func (w Workspace) Mirror() string { return w.path("mirror") }

// CLIConfig is the CLI configuration that names the mirror.
func (w Workspace) CLIConfig() string { return w.path("cli.tfrc") }

// cliFile names the CLI that applied: a state of one is not for the other.
func (w Workspace) cliFile() string { return w.path("cli") }

// RememberCLI keeps which CLI applies.
func (w Workspace) RememberCLI(c CLI) error {
	if err := os.MkdirAll(w.path(), 0o750); err != nil {
		return err
	}
	return os.WriteFile(w.cliFile(), []byte(c.Path), 0o600)
}

// UseRememberedCLI makes FindCLI find the CLI that applied, if there is one.
func (w Workspace) UseRememberedCLI() error {
	b, err := os.ReadFile(w.cliFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Setenv(CLIVariable, string(b))
}

// Log is everything that the CLI printed.
func (w Workspace) Log() string { return w.path("cli.log") }

// Snapshots holds a manifest a host, taken before anything was installed.
func (w Workspace) Snapshots() string { return w.path("before") }

// Bin is a program that the demo built.
func (w Workspace) Bin(name string) string { return filepath.Join(w.Repo, "bin", name) }

// CopyExample copies the .tf files of the quickstart example, unchanged.
func (w Workspace) CopyExample() error {
	src := filepath.Join(w.Repo, "examples", "quickstart")
	files, err := filepath.Glob(filepath.Join(src, "*.tf"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no .tf files in %s", src)
	}
	if err := os.MkdirAll(w.Config(), 0o700); err != nil {
		return err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(w.Config(), filepath.Base(f)), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}
