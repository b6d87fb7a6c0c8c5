package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// linter builds golangci-lint from its own pinned module and gives its path.
func (r repo) linter(ctx context.Context) (string, error) {
	bin := filepath.Join(r.root, "bin", "golangci-lint")
	err := r.exec(ctx, "tools/golangci-lint", "go", "build", "-o", bin, "github.com/golangci/golangci-lint/v2/cmd/golangci-lint")
	return bin, err
}

// lintRuns are the module folders and, for code behind a build tag, the tag.
var lintRuns = []struct{ module, tags string }{{".", ""}, {"internal/moaid", ""}, {"internal/moaid", "moai_damage"}}

func (r repo) lint(ctx context.Context) error {
	bin, err := r.linter(ctx)
	if err != nil {
		return err
	}
	config := filepath.Join(r.root, ".golangci.yml")
	for _, run := range lintRuns {
		fmt.Println(strings.TrimRight("--- lint of module "+run.module+" "+run.tags, " "))
		if err := r.exec(ctx, run.module, bin, "run", "--allow-parallel-runners", "--config", config, "--build-tags", run.tags, "./..."); err != nil {
			return err
		}
	}
	return nil
}
