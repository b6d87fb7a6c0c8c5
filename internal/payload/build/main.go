// Command build makes the payload: moaid for each architecture, compressed, and their manifest.
//
//	go run ./internal/payload/build            write internal/payload/dist
//	go run ./internal/payload/build -check     build twice from two copies and compare
//
// The outcome depends on sources and toolchain only: no path, time, user or version control state is in it.
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/payload"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	root := flag.String("root", ".", "root of the repository")
	out := flag.String("out", "", "folder to write; default: internal/payload/dist below root")
	arches := flag.String("arch", "amd64,arm64", "architectures, by comma")
	check := flag.Bool("check", false, "only check that two builds in different folders are equal")
	flag.Parse()
	err := run(ctx, *root, *out, strings.Split(*arches, ","), *check)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "payload:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, out string, arches []string, check bool) error {
	module := filepath.Join(root, "internal", "moaid")
	if check {
		return checkReproducible(ctx, module, arches)
	}
	if out == "" {
		out = filepath.Join(root, "internal", "payload", "dist")
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	m := payload.Manifest{Moaid: map[string]payload.Entry{}}
	for _, arch := range arches {
		bin, err := compile(ctx, module, arch)
		if err != nil {
			return err
		}
		packed, err := pack(bin)
		if err != nil {
			return err
		}
		e := payload.Entry{File: "moaid-linux-" + arch + ".gz", SHA256: digest(bin), Size: int64(len(bin))}
		if err := writeFile(filepath.Join(out, e.File), packed); err != nil {
			return err
		}
		m.Moaid[arch] = e
		fmt.Printf("moaid linux/%s %s: %d bytes, %d packed\n", arch, payload.Version(e.SHA256), len(bin), len(packed))
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	// The manifest comes last: without it there is no payload.
	return writeFile(filepath.Join(out, payload.ManifestName), append(b, '\n'))
}

// compile builds moaid in its own module and returns the binary.
func compile(ctx context.Context, module, arch string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "moaid-build-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	bin := filepath.Join(dir, "moaid")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", bin, "./cmd/moaid")
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off")
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build moaid for linux/%s: %w\n%s", arch, err, said)
	}
	return os.ReadFile(bin)
}

// pack compresses without name and time, so that equal content gives equal bytes.
func pack(b []byte) ([]byte, error) {
	var buf bytes.Buffer
	w, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// checkReproducible builds from two copies of the module in folders of different names.
func checkReproducible(ctx context.Context, module string, arches []string) error {
	dir, err := os.MkdirTemp("", "moaid-twice-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var bad []error
	for _, arch := range arches {
		var sums []string
		for _, name := range []string{"one", "another/deeper"} {
			copied := filepath.Join(dir, arch, name)
			if err := os.CopyFS(copied, os.DirFS(module)); err != nil {
				return fmt.Errorf("copy the module: %w", err)
			}
			bin, err := compile(ctx, copied, arch)
			if err != nil {
				return err
			}
			packed, err := pack(bin)
			if err != nil {
				return err
			}
			sums = append(sums, digest(packed))
		}
		if sums[0] != sums[1] {
			bad = append(bad, fmt.Errorf("linux/%s is not reproducible: %s and %s", arch, sums[0], sums[1]))
			continue
		}
		fmt.Printf("linux/%s is reproducible: %s\n", arch, sums[0])
	}
	return errors.Join(bad...)
}

// writeFile replaces a file at once, and leaves it alone when it has that content already, so that the provider is not
// linked again for nothing.
func writeFile(name string, content []byte) error {
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, content) {
		return nil
	}
	tmp := name + ".new"
	if err := os.WriteFile(tmp, content, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
