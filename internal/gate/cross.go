package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// foreign is the architecture beside amd64 that hosts have.
const foreign = "arm64"

// emulators run a program of the foreign architecture, by their usual names.
var emulators = []string{"qemu-aarch64", "qemu-aarch64-static"}

// emulated are the packages of moaid whose tests run under the emulator: pure,
// with arithmetic on which architectures could differ, and quick where each
// instruction is interpreted.
var emulated = []string{"./kvcache/...", "./kvcompat/..."}

// cross builds every package of every module for linux/arm64, with the tests of
// what runs on nodes, and the provider for macOS. Where the machine can run arm64, by itself or by an
// emulator, moaid and the tests of pure packages run too.
func (r repo) cross(ctx context.Context) error {
	for _, m := range modules {
		fmt.Printf("--- linux/%s: module %s\n", foreign, m)
		words := []string{"build"}
		if m != "." {
			words = append(words, "vet") // compiles the tests too
		}
		for _, word := range words {
			if err := r.execEnv(ctx, m, []string{"GOOS=linux", "GOARCH=" + foreign}, "go", word, "./..."); err != nil {
				return err
			}
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		fmt.Printf("--- darwin/%s: the provider\n", arch)
		if err := r.execEnv(ctx, ".", []string{"GOOS=darwin", "GOARCH=" + arch}, "go", "build", "-trimpath", "-o", os.DevNull, "."); err != nil {
			return err
		}
	}
	return r.emulate(ctx)
}

// emulate runs moaid and pure tests as arm64 programs.
func (r repo) emulate(ctx context.Context) error {
	emulator, err := findEmulator(exec.LookPath)
	if err != nil {
		fmt.Printf("not run as linux/%s: %v\n", foreign, err)
		return nil
	}
	tmp, err := os.MkdirTemp("", "moai-cross-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // a leftover in the temporary folder harms nothing
	env := []string{"GOOS=linux", "GOARCH=" + foreign}
	bin := filepath.Join(tmp, "moaid")
	if err := r.execEnv(ctx, "internal/moaid", env, "go", "build", "-trimpath", "-o", bin, "./cmd/moaid"); err != nil {
		return err
	}
	if err := r.exec(ctx, ".", append(emulator, bin, "version")...); err != nil {
		return err
	}
	test := []string{"go", "test", "-short"}
	if len(emulator) > 0 {
		test = append(test, "-exec", emulator[0])
	}
	return r.execEnv(ctx, "internal/moaid", env, append(test, emulated...)...)
}

// findEmulator gives the words before a program of the foreign architecture:
// none where the machine is of it.
func findEmulator(lookup func(string) (string, error)) ([]string, error) {
	if runtime.GOARCH == foreign {
		return nil, nil
	}
	for _, name := range emulators {
		if path, err := lookup(name); err == nil {
			return []string{path}, nil
		}
	}
	return nil, errors.New("no qemu-aarch64 on PATH (Debian: qemu-user)")
}
