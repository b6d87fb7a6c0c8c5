package demo

import (
	"errors"
	"fmt"
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

// Workspace is where the demo builds and keeps its state: everything below
// build/demo in the checkout, all ignored by git.
type Workspace struct {
	Repo string // root of the checkout
}

// FindWorkspace walks up from the working directory to the checkout's root.
func FindWorkspace() (Workspace, error) {
	dir, err := os.Getwd()
	if err != nil {
		return Workspace{}, err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "terraform-registry-manifest.json")); err == nil {
			return Workspace{Repo: dir}, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return Workspace{}, errors.New("run the demo inside a checkout of terraform-provider-moai")
		}
		dir = parent
	}
}

func (w Workspace) path(parts ...string) string {
	return filepath.Join(append([]string{w.Repo, "build", "demo"}, parts...)...)
}

// Config is the Terraform configuration's folder.
func (w Workspace) Config() string { return w.path("quickstart") }

// Mirror is the filesystem mirror that the provider is installed from.
func (w Workspace) Mirror() string { return w.path("mirror") }

// CLIConfig is the CLI configuration that names the mirror.
func (w Workspace) CLIConfig() string { return w.path("cli.tfrc") }

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
		b, err := os.ReadFile(f) //nolint:gosec // a file of this checkout
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(w.Config(), filepath.Base(f)), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}
