// Package tree removes folders that may have mounts inside, without ever deleting what is mounted there.
package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Remove unmounts everything at and below dir, then deletes it. When a mount cannot be taken away it deletes nothing.
// A folder that is not there is no error.
func Remove(dir string) error {
	if err := Unmount(dir); err != nil {
		return err
	}
	left, err := mountsUnder(dir)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("remove %s: still mounted: %s", dir, strings.Join(left, ", "))
	}
	return os.RemoveAll(dir)
}

// RemoveEmpty removes a folder of folders, innermost first, as cgroups want it. One that cannot go stays,
// which is an error; one that is not there is none.
func RemoveEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := RemoveEmpty(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Unmount takes away every mount at and below dir, the innermost first. A busy one is detached: it ends with its
// last user.
func Unmount(dir string) error {
	mounts, err := mountsUnder(dir)
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) {
		err := unix.Unmount(m, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(m, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // gone meanwhile
			return fmt.Errorf("unmount %s: %w", m, err)
		}
	}
	return nil
}

func mountsUnder(dir string) ([]string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("mount table: %w", err)
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return under(string(table), dir), nil
}

// under lists the mount points at and below dir in the order of the mount table, which is that of mounting.
func under(mountinfo, dir string) []string {
	var found []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := unescape.Replace(fields[4])
		if point == dir || strings.HasPrefix(point, strings.TrimSuffix(dir, "/")+"/") {
			found = append(found, point)
		}
	}
	return found
}

// unescape undoes what the kernel does to the characters that would break its table.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
