package main

import (
	"context"
	"fmt"
	"path/filepath"
)

// linter builds golangci-lint from its own pinned module and gives its path.
func (r repo) linter(ctx context.Context) (string, error) {
	bin := filepath.Join(r.root, "bin", "golangci-lint")
	err := r.exec(ctx, "tools/golangci-lint", "go", "build", "-o", bin, "github.com/golangci/golangci-lint/v2/cmd/golangci-lint")
	return bin, err
}

func (r repo) lint(ctx context.Context) error {
	bin, err := r.linter(ctx)
	if err != nil {
		return err
	}
	config := filepath.Join(r.root, ".golangci.yml")
	for _, m := range modules {
		fmt.Printf("--- lint of module %s\n", m)
		if err := r.exec(ctx, m, bin, "run", "--config", config, "./..."); err != nil {
			return err
		}
	}
	return nil
}
