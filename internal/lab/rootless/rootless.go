// Package rootless gives an ordinary user a place in which a lab can be made as root makes it: a user namespace with a
// range of ids, and mount, network, cgroup, IPC and UTS namespaces of its own, held open by one process, the holder. A
// program that enters it is root there and nowhere else: what it mounts, plugs and boots exists inside only, and ends
// with the holder's cgroup.
//
// # Invariants
//
//   - There is no process namespace around a place: ids of processes mean the same inside and outside, a program that
//     enters is replaced and not forked, so that its terminal, signals and exit status are its own.
//   - The holder lives in a cgroup that the user may divide, and is the root of the place's cgroup namespace. The kernel
//     lets a process be moved between two cgroups by someone who may write to both and to what they have in common, and
//     only within the mover's cgroup namespace: whoever enters is therefore moved in first.
//   - User 0 inside is the user outside, so that what both write belongs to both; the other ids are the user's range.
package rootless

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/program"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/tree"
)

// Place is a place that an ordinary user has made, or can make.
type Place struct {
	File string // where it is written down
	Name string // letters and digits
}

// record is what is written down of a place.
type record struct {
	Holder  int    `json:"holder"`  // process id
	Started string `json:"started"` // of the holder, in the kernel's ticks since boot: ids are used again
	Cgroup  string `json:"cgroup"`  // folder
}

// endDeadline bounds how long the kernel may take to end what a cgroup held.
const endDeadline = 20 * time.Second

// read returns what is written down; ok says that the holder lives.
func (p Place) read() (r record, ok bool, err error) {
	text, err := os.ReadFile(p.File)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, false, nil
	}
	if err != nil {
		return record{}, false, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return record{}, false, fmt.Errorf("%s: %w", p.File, err)
	}
	birth, err := program.Birth(r.Holder)
	return r, r.Holder > 0 && err == nil && birth == r.Started, nil
}

// Exists reports whether the place is there.
func (p Place) Exists() (bool, error) {
	_, ok, err := p.read()
	return ok, err
}

// Inside reports whether this process is in the place already.
func (p Place) Inside() bool {
	r, ok, err := p.read()
	if err != nil || !ok {
		return false
	}
	own, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return false
	}
	holders, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", r.Holder))
	return err == nil && own == holders
}

// End ends everything that runs in the place. One that is not there is no error.
func (p Place) End(ctx context.Context) error {
	r, _, err := p.read()
	if err != nil || r.Cgroup == "" {
		return err
	}
	if err := endCgroup(ctx, r.Cgroup); err != nil {
		return err
	}
	return os.Remove(p.File)
}

// endCgroup kills what lives in a cgroup, and removes it with all below it.
func endCgroup(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, endDeadline)
	defer cancel()
	for {
		err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0o600)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil // systemd removes an empty scope by itself
		}
		if err != nil {
			return fmt.Errorf("kill cgroup %s (Linux 5.14 or later is needed): %w", dir, err)
		}
		if tree.RemoveEmpty(dir) == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cgroup %s does not end: %w", dir, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
