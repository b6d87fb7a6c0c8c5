package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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
	for _, dir := range MirrorDirs(w.Mirror(), providerVersion, runtime.GOOS+"_"+runtime.GOARCH) {
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
	}
	return os.WriteFile(w.CLIConfig(), []byte(MirrorConfig(w.Mirror())), 0o600)
}

// MirrorDirs are the folders below an unpacked filesystem mirror in which either
// CLI looks for this provider. target is OS_ARCH.
func MirrorDirs(mirror, version, target string) []string {
	var dirs []string
	for _, host := range registryHosts {
		dirs = append(dirs, filepath.Join(mirror, host, providerNamespace, providerType, version, target))
	}
	return dirs
}

// MirrorConfig is the text of a CLI configuration that takes this provider from a
// filesystem mirror, and every other from where it comes from otherwise.
func MirrorConfig(mirror string) string {
	var own []string
	for _, host := range registryHosts {
		own = append(own, fmt.Sprintf("%q", host+"/"+providerNamespace+"/"+providerType))
	}
	list := strings.Join(own, ", ")
	return fmt.Sprintf(`provider_installation {
  filesystem_mirror {
    path    = %q
    include = [%s]
  }
  direct {
    exclude = [%s]
  }
}
`, mirror, list, list)
}
