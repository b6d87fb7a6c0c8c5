package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
)

// minCLI is the first release with write-only attributes and the functions that
// the examples use.
var minCLI = [2]int{1, 11}

// cliVariable names another CLI than terraform or tofu on PATH.
const cliVariable = "MOAI_TF_CLI"

// MissingError lists what the machine lacks; the demo then exits with status 3.
type MissingError struct{ Needs []string }

func (e *MissingError) Error() string { return "this machine lacks what the demo needs" }

// CLI is a Terraform or OpenTofu command.
type CLI struct {
	Path    string
	Version string
	Tofu    bool
}

// Require checks the machine and finds the CLI. MOAI_TF_CLI names another one.
func Require(ctx context.Context) (CLI, error) {
	var needs []string
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		needs = append(needs, fmt.Sprintf("Linux on x86-64: the lab's hosts are Debian for amd64 (this is %s/%s)", runtime.GOOS, runtime.GOARCH))
	}
	if os.Geteuid() != 0 {
		needs = append(needs, "root: the lab's hosts are containers with network namespaces of their own (try: sudo make demo)")
	}
	cli, err := FindCLI(ctx)
	if err != nil {
		needs = append(needs, err.Error())
	}
	if len(needs) > 0 {
		return CLI{}, &MissingError{Needs: needs}
	}
	return cli, nil
}

// FindCLI finds terraform or tofu on PATH, or what MOAI_TF_CLI names.
func FindCLI(ctx context.Context) (CLI, error) {
	candidates := []string{"terraform", "tofu"}
	if p := os.Getenv(cliVariable); p != "" {
		candidates = []string{p}
	}
	var tooOld []string
	for _, name := range candidates {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		cmd := exec.CommandContext(ctx, path, "version", "-json") //nolint:gosec // the operator's own CLI
		cmd.Env = CLIEnv("")
		out, err := cmd.Output()
		if err != nil {
			tooOld = append(tooOld, fmt.Sprintf("%s does not run: %v", path, err))
			continue
		}
		var v struct {
			Version string `json:"terraform_version"`
		}
		if err := json.Unmarshal(out, &v); err != nil {
			tooOld = append(tooOld, fmt.Sprintf("%s did not tell its version: %v", path, err))
			continue
		}
		if !AtLeast(v.Version, minCLI) {
			tooOld = append(tooOld, fmt.Sprintf("%s is %s", path, v.Version))
			continue
		}
		return CLI{Path: path, Version: v.Version, Tofu: strings.Contains(name, "tofu")}, nil
	}
	need := fmt.Sprintf("Terraform or OpenTofu %d.%d or newer as terraform or tofu on PATH, or named by MOAI_TF_CLI", minCLI[0], minCLI[1])
	if len(tooOld) > 0 {
		need += " (" + strings.Join(tooOld, "; ") + ")"
	}
	return CLI{}, fmt.Errorf("%s", need)
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
