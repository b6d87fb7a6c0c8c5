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

// bite puts each fault into a copy of what git tracks, runs its gate there, and
// takes the fault out again.
func (r repo) bite(ctx context.Context) error {
	linter, err := r.linter(ctx)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "moai-bite-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // a leftover in the temporary folder harms nothing
	if err := r.copyTo(ctx, tmp); err != nil {
		return err
	}
	for _, f := range faults(linter) {
		if err := r.biteOne(ctx, f, tmp); err != nil {
			return err
		}
		fmt.Printf("caught: %s\n", f.name)
	}
	return nil
}

func (r repo) biteOne(ctx context.Context, f fault, copy string) error {
	undo, err := f.plant(copy)
	if err != nil {
		return err
	}
	caught := f.gate(ctx, r, copy)
	if err := undo(); err != nil {
		return err
	}
	switch {
	case caught == nil:
		return fmt.Errorf("not caught: %s (%s)", f.name, f.file)
	case !strings.Contains(caught.Error(), f.want):
		return fmt.Errorf("%s: the gate fails, but not for that reason (no %q): %w", f.name, f.want, caught)
	}
	return nil
}

// plant changes the fault's file below dir; undo brings back what was there.
func (f fault) plant(dir string) (undo func() error, err error) {
	path := filepath.Join(dir, f.file)
	was, err := os.ReadFile(path)
	fresh := errors.Is(err, os.ErrNotExist)
	if err != nil && !fresh {
		return nil, err
	}
	text := string(was) + f.text
	if f.old != "" {
		if !strings.Contains(string(was), f.old) {
			return nil, fmt.Errorf("%s: %s holds no %q that could be spoiled", f.name, f.file, f.old)
		}
		text = strings.Replace(string(was), f.old, f.text, 1)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if fresh {
		return func() error { return os.Remove(path) }, nil
	}
	return func() error { return os.WriteFile(path, was, 0o600) }, nil
}

// copyTo copies the working tree's version of every file that git tracks.
func (r repo) copyTo(ctx context.Context, dir string) error {
	list := exec.CommandContext(ctx, "git", "ls-files", "-z")
	list.Dir = r.root
	files, err := list.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for _, name := range strings.Split(strings.TrimRight(string(files), "\x00"), "\x00") {
		if err := copyFile(filepath.Join(r.root, name), filepath.Join(dir, name)); err != nil {
			return err
		}
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
