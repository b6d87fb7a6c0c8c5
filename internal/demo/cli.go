package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// minCLI is the first release with write-only attributes and the functions that
// the examples use.
var minCLI = [2]int{1, 11}

// CLIVariable names another CLI than terraform or tofu on PATH.
const CLIVariable = "MOAI_TF_CLI"

// CLI is a Terraform or OpenTofu command.
type CLI struct {
	Path    string
	Version string
	Tofu    bool
}

// Name is the command's: terraform or tofu.
func (c CLI) Name() string {
	if c.Tofu {
		return "tofu"
	}
	return "terraform"
}

// FindCLI finds the CLI to use: what MOAI_TF_CLI names, or else terraform or tofu
// on PATH, or else the OpenTofu that this checkout has built. It builds nothing.
func FindCLI(ctx context.Context) (CLI, error) {
	found, unfit := findCLIs(ctx)
	if len(found) > 0 {
		return found[0], nil
	}
	need := fmt.Sprintf("Terraform or OpenTofu %d.%d or newer as terraform or tofu on PATH, or named by %s", minCLI[0], minCLI[1], CLIVariable)
	if len(unfit) > 0 {
		need += " (" + strings.Join(unfit, "; ") + ")"
	}
	return CLI{}, fmt.Errorf("%s", need)
}

// FindCLIs finds the CLIs that are at hand, at most one Terraform and one OpenTofu.
func FindCLIs(ctx context.Context) []CLI {
	found, _ := findCLIs(ctx)
	return found
}

// findCLIs looks at each candidate; unfit says what is wrong with those that
// are there and cannot be used.
func findCLIs(ctx context.Context) (found []CLI, unfit []string) {
	candidates := []string{"terraform", "tofu"}
	if ws, err := FindWorkspace(); err == nil {
		candidates = append(candidates, ws.Bin(tofuProgram))
	}
	if p := os.Getenv(CLIVariable); p != "" {
		candidates = []string{p}
	}
	have := map[bool]bool{}
	for _, name := range candidates {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		cli, err := askCLI(ctx, path)
		if err != nil {
			unfit = append(unfit, err.Error())
			continue
		}
		if !have[cli.Tofu] {
			have[cli.Tofu] = true
			found = append(found, cli)
		}
	}
	return found, unfit
}

// askCLI asks a program whether it is a CLI that can be used.
func askCLI(ctx context.Context, path string) (CLI, error) {
	cmd := exec.CommandContext(ctx, path, "version", "-json") //nolint:gosec // the operator's own CLI
	cmd.Env = CLIEnv(os.DevNull)
	out, err := cmd.Output()
	if err != nil {
		return CLI{}, fmt.Errorf("%s does not run: %w", path, err)
	}
	var v struct {
		Version string `json:"terraform_version"`
	}
	if err := json.Unmarshal(out, &v); err != nil {
		return CLI{}, fmt.Errorf("%s did not tell its version: %w", path, err)
	}
	if !AtLeast(v.Version, minCLI) {
		return CLI{}, fmt.Errorf("%s is %s", path, v.Version)
	}
	return CLI{Path: path, Version: v.Version, Tofu: strings.Contains(filepath.Base(path), "tofu")}, nil
}

// AtLeast compares the first two numbers of a version. What is no version is too old.
func AtLeast(version string, want [2]int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return false
	}
	minor, err := strconv.Atoi(parts[1])
	if err != nil {
		return false
	}
	return major > want[0] || major == want[0] && minor >= want[1]
}
