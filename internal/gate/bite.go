package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// fault is something that a gate must catch: a file that is put into a copy of
// the checkout, and the command that must then fail and say why.
type fault struct {
	name string
	file string // in the copy
	text string // appended to file
	argv func(r repo, copy string) (dir string, argv []string)
	want string // part of what the command must print
}

func faults(linter string) []fault {
	lint := func(module, pkg string) func(repo, string) (string, []string) {
		return func(_ repo, copy string) (string, []string) {
			return filepath.Join(copy, module), []string{linter, "run", "--config", filepath.Join(copy, ".golangci.yml"), pkg}
		}
	}
	return []fault{
		{
			name: "moaid imports Terraform", file: "internal/moaid/kvcompat/bad.go",
			text: "package kvcompat\n\nimport _ \"github.com/hashicorp/go-cleanhttp\"\n",
			argv: lint("internal/moaid", "./kvcompat/..."), want: "depguard",
		},
		{
			name: "a pure package opens sockets", file: "internal/moaid/kvcache/bad.go",
			text: "package kvcache\n\nimport \"net\"\n\nvar _ net.Conn\n",
			argv: lint("internal/moaid", "./kvcache/..."), want: "depguard",
		},
		{
			name: "an unchecked error", file: "internal/moaid/kvcache/bad.go",
			text: "package kvcache\n\nfunc bad() { (&Fingerprint{}).Validate() }\n\nvar _ = bad\n",
			argv: lint("internal/moaid", "./kvcache/..."), want: "errcheck",
		},
		{
			name: "a test that fails", file: "internal/moaid/kvcompat/bad_test.go",
			text: "package kvcompat\n\nimport \"testing\"\n\nfunc TestBad(t *testing.T) { t.Fatal(\"bad\") }\n",
			argv: func(_ repo, copy string) (string, []string) {
				return filepath.Join(copy, "internal/moaid"), []string{"go", "test", "./kvcompat/..."}
			}, want: "FAIL",
		},
		{
			name: "an example with another format", file: "examples/provider/bad.tf",
			text: "locals {\n      a =    1\n}\n",
			argv: func(r repo, copy string) (string, []string) {
				return copy, []string{cliName(), "fmt", "-check", "-recursive", "examples"}
			}, want: "bad.tf",
		},
	}
}

func cliName() string {
	if _, err := exec.LookPath("terraform"); err == nil {
		return "terraform"
	}
	return "tofu"
}

// bite puts each fault into a copy of what git tracks and runs its gate there.
func (r repo) bite(ctx context.Context) error {
	linter, err := r.linter(ctx)
	if err != nil {
		return err
	}
	for _, f := range faults(linter) {
		if err := r.biteOne(ctx, f); err != nil {
			return err
		}
		fmt.Printf("caught: %s\n", f.name)
	}
	if differences(map[string]string{"a": "1"}, map[string]string{"a": "2"}) == nil {
		return errors.New("not caught: a page that is out of date")
	}
	fmt.Println("caught: a page that is out of date")
	return nil
}

func (r repo) biteOne(ctx context.Context, f fault) error {
	tmp, err := os.MkdirTemp("", "moai-bite-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // a leftover in the temporary folder harms nothing
	list := exec.CommandContext(ctx, "git", "ls-files", "-z")
	list.Dir = r.root
	files, err := list.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for _, name := range strings.Split(strings.TrimRight(string(files), "\x00"), "\x00") {
		if err := copyFile(filepath.Join(r.root, name), filepath.Join(tmp, name)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(tmp, f.file), []byte(f.text), 0o600); err != nil {
		return err
	}
	dir, argv := f.argv(r, tmp)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod -buildvcs=false")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return fmt.Errorf("not caught: %s: %s passes\n%s", f.name, strings.Join(argv, " "), out)
	}
	if !strings.Contains(string(out), f.want) {
		return fmt.Errorf("%s: %s fails, but not for that reason (no %q):\n%s", f.name, strings.Join(argv, " "), f.want, out)
	}
	return nil
}

func copyFile(src, dst string) error {
	info, err := os.Lstat(src)
	if errors.Is(err, os.ErrNotExist) {
		return nil // removed in the working tree
	}
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o750); err != nil {
		return err
	}
	b, err := os.ReadFile(src)
	if err != nil {
		return err
	}
	return os.WriteFile(dst, b, info.Mode().Perm())
}
