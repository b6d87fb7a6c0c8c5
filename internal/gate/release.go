package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/moai-dev/terraform-provider-moai/internal/demo"
)

// releaseDir is where .goreleaser.yaml has the archives made.
const releaseDir = "build/release"

// release makes the archives of a release, unsigned, and proves that what a
// registry would serve is right: names, sums, contents, and that each CLI at
// hand installs the provider from its archive and validates the examples with it.
func (r repo) release(ctx context.Context) error {
	dir, rel, err := r.snapshot(ctx)
	if err != nil {
		return err
	}
	packed, err := r.payloads()
	if err != nil {
		return err
	}
	manifest, err := os.ReadFile(filepath.Join(r.root, "terraform-registry-manifest.json"))
	if err != nil {
		return err
	}
	if err := rel.check(os.DirFS(dir), manifest, packed, r.root); err != nil {
		return fmt.Errorf("%s: %w", releaseDir, err)
	}
	fmt.Printf("%d archives of version %s are as a registry wants them\n", len(releaseTargets), rel.Version)
	return r.installRelease(ctx, dir, rel)
}

// snapshot runs GoReleaser, built from its own pinned module, and reads what came out.
func (r repo) snapshot(ctx context.Context) (dir string, rel archives, err error) {
	bin := filepath.Join(r.root, "bin", "goreleaser")
	if err := r.exec(ctx, "tools/goreleaser", "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "github.com/goreleaser/goreleaser/v2"); err != nil {
		return "", archives{}, err
	}
	if err := r.execEnv(ctx, ".", r.remote(ctx), bin, "release", "--snapshot", "--clean", "--skip=sign", "--parallelism=2"); err != nil {
		return "", archives{}, err
	}
	dir = filepath.Join(r.root, releaseDir)
	rel, err = readArchives(os.DirFS(dir))
	return dir, rel, err
}

// remote gives a checkout without remotes one, for git's eyes only: without any,
// GoReleaser does not read the commit from which versions and times are made.
func (r repo) remote(ctx context.Context) []string {
	list := exec.CommandContext(ctx, "git", "remote")
	list.Dir = r.root
	if out, err := list.Output(); err != nil || len(out) > 0 {
		return nil // no git: GoReleaser will say so
	}
	return []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=remote.origin.url", "GIT_CONFIG_VALUE_0=https://github.com/moai-dev/" + project}
}

// releaseTwice makes the archives a second time and compares the sums.
func (r repo) releaseTwice(ctx context.Context) error {
	var sums, versions [2]string
	for i := range sums {
		dir, rel, err := r.snapshot(ctx)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, rel.sumsName()))
		if err != nil {
			return err
		}
		sums[i], versions[i] = string(b), rel.Version
	}
	if versions[0] != versions[1] {
		return fmt.Errorf("another commit came between the two builds: %s, then %s; run it again", versions[0], versions[1])
	}
	if sums[0] != sums[1] {
		return fmt.Errorf("two builds of the same commit differ:\n%s\n%s", sums[0], sums[1])
	}
	fmt.Println("two builds give the same archives")
	return nil
}

// payloads reads the packed moaid binaries that a provider must carry.
func (r repo) payloads() ([][]byte, error) {
	files, err := filepath.Glob(filepath.Join(r.root, "internal", "payload", "dist", "*.gz"))
	if err != nil {
		return nil, err
	}
	var packed [][]byte
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		packed = append(packed, b)
	}
	if len(packed) < 2 {
		return nil, errors.New("internal/payload/dist has no moaid for two architectures")
	}
	return packed, nil
}

// installRelease has every CLI at hand install the provider from its archive.
func (r repo) installRelease(ctx context.Context, dir string, rel archives) error {
	clis := demo.FindCLIs(ctx)
	if len(clis) == 0 {
		_, err := demo.FindCLI(ctx)
		return err
	}
	tmp, err := os.MkdirTemp("", "moai-mirror-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // a leftover in the temporary folder harms nothing
	for _, to := range demo.MirrorDirs(tmp, rel.Version, runtime.GOOS+"_"+runtime.GOARCH) {
		if err := unzip(filepath.Join(dir, rel.zipName(runtime.GOOS+"_"+runtime.GOARCH)), to); err != nil {
			return err
		}
	}
	config := filepath.Join(tmp, "cli.tfrc")
	if err := os.WriteFile(config, []byte(demo.MirrorConfig(tmp)), 0o600); err != nil {
		return err
	}
	dirs, err := exampleDirs(filepath.Join(r.root, "examples"))
	if err != nil {
		return err
	}
	for _, cli := range clis {
		for _, example := range dirs {
			if err := validateOne(ctx, cli, config, example, rel.Version); err != nil {
				return fmt.Errorf("%s %s, provider from the archive: %w", cli.Name(), cli.Version, err)
			}
		}
		fmt.Printf("%s %s installs the archive and validates %d examples with it\n", cli.Name(), cli.Version, len(dirs))
	}
	return nil
}
