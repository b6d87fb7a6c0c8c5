package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/program"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/tree"
)

// Path is where the image of a recipe lies under the folder of images.
func Path(images string, r Recipe) string { return filepath.Join(images, r.ID()) }

// Way is how the files of an image are made and taken away.
type Way struct {
	// Make makes the recipe's packages into the folder target. sources are files of package sources, options those of apt.
	Make   func(ctx context.Context, r Recipe, target string, sources, options []string) error
	Remove func(ctx context.Context, dir string) error
}

// AsRoot is the way of root.
var AsRoot = Way{
	Make: func(ctx context.Context, r Recipe, target string, sources, options []string) error {
		// Namespaces of its own: nothing that the build mounts or starts can outlive it.
		args := append([]string{"unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "--"},
			r.Command(target, sources, options)...)
		_, err := program.Run(ctx, program.Command{Args: args})
		return err
	},
	Remove: func(_ context.Context, dir string) error { return tree.Remove(dir) },
}

// Ensure returns the path of the recipe's image and builds it when it is not there. say is told before a build.
// An image appears under its name only when it is complete.
func Ensure(ctx context.Context, images string, r Recipe, way Way, say func(string, ...any)) (string, error) {
	target := Path(images, r)
	if err := os.MkdirAll(images, 0o755); err != nil {
		return "", fmt.Errorf("image folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(images, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", fmt.Errorf("image lock: %w", err)
	}
	defer func() { _ = lock.Close() }() // which also gives the lock back
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("image lock: %w", err)
	}
	if _, err := os.Stat(target); err == nil {
		return target, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("image: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(images, "building-*"))
	if err != nil {
		return "", err
	}
	for _, dir := range left { // of a build that was killed; the lock says that none is running
		if err := way.Remove(ctx, dir); err != nil {
			return "", fmt.Errorf("remove an unfinished image: %w", err)
		}
	}
	say("building the host image %s with mmdebstrap (about a minute, once)", r.ID())
	work := filepath.Join(images, "building-"+r.ID())
	sources, options, err := machineSources(ctx, r.Suite)
	if err != nil {
		return "", err
	}
	if err := way.Make(ctx, r, work, sources, options); err != nil {
		return "", fmt.Errorf("build the host image: %w", err)
	}
	if err := finish(work, r); err != nil {
		return "", fmt.Errorf("finish the host image: %w", err)
	}
	if err := os.Rename(work, target); err != nil {
		return "", fmt.Errorf("finish the host image: %w", err)
	}
	return target, nil
}

// finish writes, removes and masks what the recipe says.
func finish(root string, r Recipe) error {
	for _, pattern := range r.Remove {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		for _, f := range found {
			if err := os.RemoveAll(f); err != nil {
				return err
			}
		}
	}
	for _, f := range r.Files {
		name := filepath.Join(root, f.Path)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(f.Content), fs.FileMode(f.Mode)); err != nil {
			return err
		}
		if err := os.Chmod(name, fs.FileMode(f.Mode)); err != nil {
			return err
		}
	}
	for _, unit := range r.Mask {
		name := filepath.Join(root, "etc/systemd/system", unit)
		if err := os.RemoveAll(name); err != nil {
			return err
		}
		if err := os.Symlink("/dev/null", name); err != nil {
			return err
		}
	}
	return nil
}

// machineSources reads the machine's package sources and proxies.
func machineSources(ctx context.Context, suite string) (sources, options []string, err error) {
	files := map[string]string{}
	for _, pattern := range []string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/*.sources"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, nil, err
		}
		for _, name := range found {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, nil, fmt.Errorf("package sources of this machine: %w", err)
			}
			files[name] = string(text)
		}
	}
	dump, err := program.Run(ctx, program.Command{Args: []string{"apt-config", "dump"}})
	if err != nil {
		dump = "" // no apt on this machine: mmdebstrap will say what it misses
	}
	return Sources(files, suite), ProxyOptions(dump), nil
}
