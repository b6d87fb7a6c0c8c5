package manifest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/program"
)

// Source says where a host is to be found on this machine.
type Source struct {
	Host      string
	Root      string // its file system, seen from outside
	Leader    int    // its process 1 on this machine; 0: it is off
	Processes []int  // ids, on this machine, of everything that runs for it
	// Within says that the collector itself runs inside the host. Other file systems than its root's are then not the host's.
	Within bool
	// Systemctl asks the host's systemd; nil asks it through the host's namespaces.
	Systemctl func(args ...string) (string, error)
}

// Collect writes down a host. Files that vanish meanwhile are left out.
func Collect(ctx context.Context, s Source) (Manifest, error) {
	m := Manifest{Host: s.Host, Powered: s.Leader != 0}
	root := s.Root
	if m.Powered && !s.Within { // what the host itself sees, with its own mounts
		root = fmt.Sprintf("/proc/%d/root", s.Leader)
	}
	var err error
	if m.Files, err = walk(ctx, root, s.Within); err != nil {
		return Manifest{}, fmt.Errorf("host %s: list files: %w", s.Host, err)
	}
	for file, list := range map[string]*[]Account{"passwd": &m.Users, "group": &m.Groups} {
		text, err := os.ReadFile(filepath.Join(root, "etc", file))
		if err != nil {
			return Manifest{}, fmt.Errorf("host %s: %w", s.Host, err)
		}
		*list = parseAccounts(string(text))
	}
	if !m.Powered {
		return m, nil
	}
	m.Processes = running(s.Processes, s.Within)
	ask := func(args ...string) (string, error) {
		return program.Run(ctx, program.Command{Args: append([]string{"nsenter", "--target", strconv.Itoa(s.Leader),
			"--mount", "--uts", "--ipc", "--net", "--pid", "--", "systemctl", "--no-pager", "--no-legend", "--plain"}, args...)})
	}
	systemctl := s.Systemctl
	if systemctl == nil {
		systemctl = ask
	}
	out, err := systemctl("list-unit-files", "--all")
	if err != nil {
		return Manifest{}, fmt.Errorf("host %s: %w", s.Host, err)
	}
	m.UnitFiles = parseUnits(out, 1)
	if out, err = systemctl("list-units", "--type=service", "--state=active,failed,activating"); err != nil {
		return Manifest{}, fmt.Errorf("host %s: %w", s.Host, err)
	}
	m.Services = parseUnits(out, 2)
	return m, nil
}

// hidden are the folders that hold the kernel's files and not the host's. Shared memory is the host's.
func hidden(path string) bool {
	return path == "/proc" || path == "/sys" || path == "/dev" && path != "/dev/shm"
}

func walk(ctx context.Context, root string, oneDevice bool) ([]File, error) {
	var files []File
	var device uint64
	if oneDevice {
		var st syscall.Stat_t
		if err := syscall.Stat(root+"/", &st); err != nil {
			return nil, err
		}
		device = st.Dev
	}
	for _, top := range []string{"/", "/dev/shm"} {
		// With a last slash the walk also starts from a root that is a link, as /proc/PID/root is.
		err := filepath.WalkDir(root+top+"/", func(name string, _ fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			path := "/" + strings.Trim(strings.TrimPrefix(name, root), "/")
			if hidden(path) {
				return fs.SkipDir
			}
			if oneDevice {
				var st syscall.Stat_t
				if err := syscall.Lstat(name, &st); err == nil && st.Dev != device && st.Mode&syscall.S_IFMT == syscall.S_IFDIR {
					return fs.SkipDir
				}
			}
			f, err := describe(name, path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil {
				files = append(files, f)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return files, nil
}

// describe writes down one file.
func describe(name, path string) (File, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return File{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return File{}, fmt.Errorf("%s: no owner", name)
	}
	f := File{Path: path, Mode: fmt.Sprintf("%04o", st.Mode&0o7777), UID: st.Uid, GID: st.Gid}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		f.Type = "file"
		f.SHA256, err = hash(name)
	case mode.IsDir():
		f.Type = "dir"
	case mode&fs.ModeSymlink != 0:
		f.Type = "link"
		f.Target, err = os.Readlink(name)
	case mode&fs.ModeSocket != 0:
		f.Type = "socket"
	case mode&fs.ModeNamedPipe != 0:
		f.Type = "fifo"
	case mode&fs.ModeCharDevice != 0:
		f.Type = "char"
	default:
		f.Type = "block"
	}
	return f, err
}

func hash(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// running describes the processes of the host: those which live in a process namespace below ours, or, seen from within,
// all.
func running(pids []int, within bool) []Process {
	count := map[string]*Process{}
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/", pid)
		status, err := os.ReadFile(dir + "status")
		if err != nil || !within && !inside(string(status)) {
			continue // ended meanwhile, or the container's supervisor
		}
		comm, _ := os.ReadFile(dir + "comm")
		args, _ := os.ReadFile(dir + "cmdline")
		group, _ := os.ReadFile(dir + "cgroup")
		exe, err := os.Readlink(dir + "exe")
		if err != nil {
			continue
		}
		p := Process{
			Command: strings.TrimSpace(string(comm)), Exe: exe, Cgroup: hostCgroup(string(group)),
			Args: strings.Split(strings.TrimRight(string(args), "\x00 "), "\x00"),
		}
		key := fmt.Sprint(p)
		if count[key] == nil {
			count[key] = &p
		}
		count[key].Count++
	}
	var list []Process
	for _, p := range count {
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.Cgroup, b.Cgroup), cmp.Compare(a.Command, b.Command), slices.Compare(a.Args, b.Args))
	})
	return list
}
