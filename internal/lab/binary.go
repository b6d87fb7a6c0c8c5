package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/program"
)

// labBinary returns the moaid-lab to put into the hosts: the given file, or one built from the source tree in which
// the lab was called.
func (l *Lab) labBinary(ctx context.Context, file string) ([]byte, error) {
	if file == "" {
		module, err := findModule()
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(filepath.Join(l.base, "bin"), 0o755); err != nil {
			return nil, err
		}
		file = filepath.Join(l.base, "bin", "moaid-lab-"+l.Plan.Name)
		l.say("building moaid-lab")
		_, err = program.Run(ctx, program.Command{
			Args: []string{"go", "build", "-trimpath", "-buildvcs=false", "-o", file, "./cmd/moaid-lab"},
			Dir:  module,
			Env:  append(os.Environ(), "CGO_ENABLED=0"),
		})
		if err != nil {
			return nil, fmt.Errorf("build moaid-lab (or give one with --moaid-lab FILE): %w", err)
		}
	}
	binary, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("moaid-lab: %w", err)
	}
	return binary, nil
}

// findModule looks for the node module in the current folder and those above it.
func findModule() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		module := filepath.Join(dir, "internal", "moaid")
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
			return module, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no source tree of moaid-lab here to build it from: call from the repository, or give --moaid-lab FILE")
		}
		dir = parent
	}
}
