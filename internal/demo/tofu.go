package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

const (
	tofuProgram = "tofu" // in bin/
	tofuModule  = "github.com/opentofu/opentofu"
)

// EnsureCLI finds the CLI to use and, where there is none and nobody named one,
// builds OpenTofu into bin/ from the release that tools/opentofu pins. say is
// told before a build. What this process starts afterwards finds it too.
func (w Workspace) EnsureCLI(ctx context.Context, say func(format string, args ...any)) (CLI, error) {
	cli, err := FindCLI(ctx)
	switch {
	case os.Getenv(CLIVariable) != "":
		return cli, err
	case err == nil && cli.Path != w.Bin(tofuProgram):
		return cli, nil
	}
	// Nothing on PATH. What bin/ has may be of another release than the pinned one.
	return w.EnsureTofu(ctx, say)
}

// EnsureTofu gives the OpenTofu that tools/opentofu pins, and builds it when
// bin/ has none of that release.
func (w Workspace) EnsureTofu(ctx context.Context, say func(format string, args ...any)) (CLI, error) {
	bin := w.Bin(tofuProgram)
	mod, err := os.ReadFile(filepath.Join(w.tofuSource(), "go.mod"))
	if err != nil {
		return CLI{}, err
	}
	want, err := pinnedTofu(mod)
	if err != nil {
		return CLI{}, err
	}
	if cli, err := askCLI(ctx, bin); err == nil && cli.Version == want {
		return cli, nil
	}
	say("building OpenTofu %s into bin/ from tools/opentofu with Go (once; about five minutes on two cores)", want)
	_, err = command{
		dir: w.tofuSource(), env: append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off"),
		// dev=no is what makes it a release and not 1.x.y-dev, as in OpenTofu's own builds.
		argv: []string{"go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X " + tofuModule + "/version.dev=no", "-o", bin, tofuModule + "/cmd/tofu"},
	}.run(ctx)
	if err != nil {
		return CLI{}, fmt.Errorf("build OpenTofu (or put terraform or tofu on PATH, or name one by %s): %w", CLIVariable, err)
	}
	return askCLI(ctx, bin)
}

func (w Workspace) tofuSource() string { return filepath.Join(w.Repo, "tools", "opentofu") }

var tofuRequirement = regexp.MustCompile(`(?m)^\s*(?:require\s+)?` + regexp.QuoteMeta(tofuModule) + `\s+v(\S+)`)

// pinnedTofu reads the OpenTofu release from the text of a go.mod.
func pinnedTofu(mod []byte) (string, error) {
	m := tofuRequirement.FindSubmatch(mod)
	if m == nil {
		return "", fmt.Errorf("tools/opentofu/go.mod does not require %s", tofuModule)
	}
	return string(m[1]), nil
}
