// Command gate runs the repository's checks, the same here as in CI:
//
//	gate test               unit, property, in-process acceptance, conformance and lab tests of every module
//	gate lab                the lab acceptance suite only
//	gate formats            all pairs of KV formats through engines and daemons, with the controls; the last line is JSON
//	gate lint               golangci-lint in every module
//	gate generate [--check] docs from the schema; --check fails on a difference
//	gate examples           fmt and validate of every example, under Terraform and OpenTofu
//	gate release [--twice]  the archives of a release, unsigned, and an installation from them; --twice compares two builds
//	gate tofu               the OpenTofu that tools/opentofu pins, into bin/
//	gate cross              every program for linux/arm64 and the provider for macOS; pure tests under an emulator
//	gate bite               proves that the gates fail on what they are there to catch
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/moai-dev/terraform-provider-moai/internal/demo"
)

// modules are the Go modules with code of ours; `./...` does not enter nested ones.
var modules = []string{".", "internal/moaid"}

// repo is the checkout that the gates work on.
type repo struct {
	root string
	ws   demo.Workspace
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	ws, err := demo.FindWorkspace()
	if err != nil {
		return err
	}
	r := repo{root: ws.Repo, ws: ws}
	switch strings.Join(args, " ") {
	case "test":
		return r.test(ctx)
	case "lab":
		return r.lab(ctx)
	case "formats":
		return r.testFormats(ctx)
	case "lint":
		return r.lint(ctx)
	case "generate":
		return r.generate(ctx, false)
	case "generate --check":
		return r.generate(ctx, true)
	case "examples":
		return r.examples(ctx)
	case "release":
		return r.release(ctx)
	case "release --twice":
		return r.releaseTwice(ctx)
	case "tofu":
		_, err := r.ws.EnsureTofu(ctx, say)
		return err
	case "cross":
		return r.cross(ctx)
	case "bite":
		return r.bite(ctx)
	}
	return fmt.Errorf("usage: gate test | lab | formats | lint | generate [--check] | examples | release [--twice] | tofu | cross | bite")
}

// exec runs argv in a folder of the checkout, its output on ours.
func (r repo) exec(ctx context.Context, dir string, argv ...string) error {
	return r.execEnv(ctx, dir, nil, argv...)
}

// execEnv is exec with more variables.
func (r repo) execEnv(ctx context.Context, dir string, env []string, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = filepath.Join(r.root, dir)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s (in %s): %w", strings.Join(argv, " "), dir, err)
	}
	return nil
}

// say tells what takes long.
func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// useCLI makes the tests find a CLI: acceptance tests look for terraform and tofu
// on PATH only.
func (r repo) useCLI(ctx context.Context) error {
	cli, err := r.ws.EnsureCLI(ctx, say)
	if err != nil {
		return err
	}
	if os.Getenv("TF_ACC_TERRAFORM_PATH") != "" {
		return nil
	}
	return os.Setenv("TF_ACC_TERRAFORM_PATH", cli.Path)
}

// test runs every module's tests, none from a cache: what they find depends on
// the machine. Two modules at once would fight for the lab and the cores.
func (r repo) test(ctx context.Context) error {
	if err := r.useCLI(ctx); err != nil {
		return err
	}
	for _, m := range modules {
		fmt.Printf("--- tests of module %s\n", m)
		if err := r.exec(ctx, m, "go", "test", "-count=1", "-timeout", "20m", "./..."); err != nil {
			return err
		}
	}
	fmt.Println("--- controls of the correctness claim that need the test build")
	return r.exec(ctx, "internal/moaid", "go", "test", "-count=1", "-timeout", "10m", "-tags", "moai_damage", "-run", "Damage|Noop|Flip|NoFaults", "./e2e/...", "./kvd/...")
}

// lab runs the tests that boot hosts, and shows what they did.
func (r repo) lab(ctx context.Context) error {
	if err := r.useCLI(ctx); err != nil {
		return err
	}
	return r.exec(ctx, ".", "go", "test", "-count=1", "-timeout", "30m", "-v", "-run", "^TestLab", "./internal/demo/...", "./internal/lab/...")
}
