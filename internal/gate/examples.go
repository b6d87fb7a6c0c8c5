package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"

	"github.com/moai-dev/terraform-provider-moai/internal/demo"
)

// examples checks the format of every example and validates those that are
// whole configurations, against the provider of this checkout.
func (r repo) examples(ctx context.Context) error {
	if err := exampleFormat(ctx, r.root); err != nil {
		return err
	}
	dirs, err := exampleDirs(filepath.Join(r.root, "examples"))
	if err != nil {
		return err
	}
	if err := r.validate(ctx, dirs...); err != nil {
		return err
	}
	fmt.Printf("%d examples are formatted and valid\n", len(dirs))
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
		if err := r.validateOne(ctx, cli, dir); err != nil {
			return err
		}
	}
	return nil
}

// validateOne runs init and validate on a copy, so that nothing is left in the checkout.
func (r repo) validateOne(ctx context.Context, cli demo.CLI, dir string) error {
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
	for _, args := range [][]string{{"init", "-input=false", "-no-color", "-backend=false"}, {"validate", "-no-color"}} {
		cmd := exec.CommandContext(ctx, cli.Path, args...)
		cmd.Dir, cmd.Env = tmp, demo.CLIEnv(r.ws.CLIConfig())
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s of %s: %w\n%s", args[0], dir, err, out)
		}
	}
	return nil
}
