package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
)

func init() {
	commands = append(commands, command{"version", "print the SHA-256 of this binary, which is its version", runVersion})
}

func runVersion(_ context.Context, args []string) int {
	fs := flag.NewFlagSet("version", flag.ContinueOnError)
	if err := fs.Parse(args); err != nil {
		return 2
	}
	sum, err := contentSHA256()
	if err != nil {
		return fail("version", err)
	}
	fmt.Println(sum)
	return 0
}

// contentSHA256 hashes the running binary, also when the file on disk was
// replaced since.
func contentSHA256() (string, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("open the running binary: %w", err)
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read the running binary: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
