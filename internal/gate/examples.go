package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"

	"github.com/moai-dev/terraform-provider-moai/internal/demo"
)

// examples checks the format of every example and validates those that are
// whole configurations, against the provider of this checkout, with Terraform and
// with OpenTofu where both are at hand. Where the checks must be complete, OpenTofu
// is built if need be.
func (r repo) examples(ctx context.Context) error {
	if err := exampleFormat(ctx, r.root); err != nil {
		return err
	}
	dirs, err := exampleDirs(filepath.Join(r.root, "examples"))
	if err != nil {
		return err
	}
	if err := r.ws.Build(ctx); err != nil {
		return err
	}
	if os.Getenv("MOAI_REQUIRE") != "" {
		if _, err := r.ws.EnsureTofu(ctx, say); err != nil {
			return err
		}
	}
	clis := demo.FindCLIs(ctx)
	for _, cli := range clis {
		for _, dir := range dirs {
			if err := validateOne(ctx, cli, r.ws.CLIConfig(), dir, ""); err != nil {
				return fmt.Errorf("%s %s: %w", cli.Name(), cli.Version, err)
			}
		}
		fmt.Printf("%d examples are formatted and valid under %s %s\n", len(dirs), cli.Name(), cli.Version)
	}
	return missingCLIs(clis)
}

// missingCLIs says which of the two CLIs was not at hand; where the checks must
// be complete that is an error.
func missingCLIs(clis []demo.CLI) error {
	for _, name := range []string{"terraform", "tofu"} {
		if slices.ContainsFunc(clis, func(c demo.CLI) bool { return c.Name() == name }) {
			continue
		}
		if os.Getenv("MOAI_REQUIRE") != "" {
			return fmt.Errorf("MOAI_REQUIRE is set, and there is no %s on PATH", name)
		}
		fmt.Printf("not checked under %s: it is not on PATH\n", name)
	}
	return nil
}

// exampleFormat checks the format of the examples of a checkout.
func exampleFormat(ctx context.Context, root string) error {
	cli, err := demo.FindCLI(ctx)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, cli.Path, "fmt", "-check", "-diff", "-recursive", "examples")
	cmd.Dir, cmd.Env = root, demo.CLIEnv("")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format of examples (run make fmt): %w\n%s", err, out)
	}
	return nil
}

// exampleDirs lists the folders below root that hold .tf files.
func exampleDirs(root string) ([]string, error) {
	seen := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() && filepath.Ext(path) == ".tf" {
			seen[filepath.Dir(path)] = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(seen) == 0 {
		return nil, fmt.Errorf("no examples below %s", root)
	}
	var dirs []string
	for d := range seen {
		dirs = append(dirs, d)
	}
	sort.Strings(dirs)
	return dirs, nil
}

// validate holds examples against the provider of this checkout.
func (r repo) validate(ctx context.Context, dirs ...string) error {
	cli, err := demo.FindCLI(ctx)
	if err != nil {
		return err
	}
	if err := r.ws.Build(ctx); err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := validateOne(ctx, cli, r.ws.CLIConfig(), dir, ""); err != nil {
			return err
		}
	}
	return nil
}

// onlyVersion overrides what a configuration says about the provider's version.
func onlyVersion(version string) string {
	return fmt.Sprintf("terraform {\n  required_providers {\n    moai = {\n      source  = \"moai-dev/moai\"\n      version = %q\n    }\n  }\n}\n", version)
}

// validateOne runs init and validate on a copy, so that nothing is left in the
// checkout. config is the CLI's configuration, with the mirror that the provider
// comes from; version is the one release that may be taken, empty: the newest.
func validateOne(ctx context.Context, cli demo.CLI, config, dir, version string) error {
	tmp, err := os.MkdirTemp("", "moai-example-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // a leftover in the temporary folder harms nothing
	files, err := filepath.Glob(filepath.Join(dir, "*.tf"))
	if err != nil {
		return err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(tmp, filepath.Base(f)), b, 0o600); err != nil {
			return err
		}
	}
	if version != "" {
		if err := os.WriteFile(filepath.Join(tmp, "version_override.tf"), []byte(onlyVersion(version)), 0o600); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"init", "-input=false", "-no-color", "-backend=false"}, {"validate", "-no-color"}} {
		cmd := exec.CommandContext(ctx, cli.Path, args...)
		cmd.Dir, cmd.Env = tmp, demo.CLIEnv(config)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s of %s: %w\n%s", args[0], dir, err, out)
		}
	}
	return nil
}
