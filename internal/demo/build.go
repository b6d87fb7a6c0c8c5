package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Build makes moaid for both architectures, the provider that carries it, the
// lab and its host program, and installs the provider in the mirror under its
// registry address.
func (w Workspace) Build(ctx context.Context) error {
	env := append(os.Environ(), "CGO_ENABLED=0")
	reproducible := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid="}
	for _, c := range []command{
		{dir: w.Repo, env: env, argv: []string{"go", "run", "-trimpath", "./internal/payload/build"}},
		{dir: w.Repo, env: env, argv: append(append([]string{"go"}, reproducible...), "-o", w.Bin("terraform-provider-moai"), ".")},
		{dir: filepath.Join(w.Repo, "internal", "moaid"), env: env, argv: append(append([]string{"go"}, reproducible...), "-o", w.Bin("moaid-lab"), "./cmd/moaid-lab")},
	} {
		if _, err := c.run(ctx); err != nil {
			return err
		}
	}
	if err := w.BuildLab(ctx); err != nil {
		return err
	}
	return w.InstallProvider()
}

// BuildLab makes the lab program.
func (w Workspace) BuildLab(ctx context.Context) error {
	_, err := command{
		dir: w.Repo, env: append(os.Environ(), "CGO_ENABLED=0"),
		argv: []string{"go", "build", "-trimpath", "-buildvcs=false", "-o", w.Bin("lab"), "./internal/lab/cmd/lab"},
	}.run(ctx)
	return err
}

// InstallProvider links the provider into an unpacked filesystem mirror and
// writes the CLI configuration that takes this provider from it, and no other.
func (w Workspace) InstallProvider() error {
	var include []string
	for _, host := range registryHosts {
		dir := filepath.Join(w.Mirror(), host, providerNamespace, providerType, providerVersion, "linux_amd64")
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
		dst := filepath.Join(dir, fmt.Sprintf("terraform-provider-%s_v%s", providerType, providerVersion))
		if err := os.Remove(dst); err != nil && !os.IsNotExist(err) {
			return err
		}
		if err := os.Link(w.Bin("terraform-provider-moai"), dst); err != nil {
			return err
		}
		include = append(include, fmt.Sprintf("%q", host+"/"+providerNamespace+"/"+providerType))
	}
	list := strings.Join(include, ", ")
	return os.WriteFile(w.CLIConfig(), fmt.Appendf(nil, `provider_installation {
  filesystem_mirror {
    path    = %q
    include = [%s]
  }
  direct {
    exclude = [%s]
  }
}
`, w.Mirror(), list, list), 0o600)
}
