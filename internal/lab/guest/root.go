package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/account"
)

// shown are the machine's top folders that a host sees, besides /usr: where programs and libraries can be.
var shown = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32", "libo32", "nix", "gnu"}

// devices are the machine's device nodes that a host sees.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// folders are what a host has of its own, with their modes.
var folders = []struct {
	path string
	mode fs.FileMode
}{
	{"etc/systemd/system", 0o755}, {"etc/ssh", 0o755}, {"opt", 0o755}, {"srv", 0o755}, {"mnt", 0o755}, {"root", 0o700}, {"home", 0o755},
	{"var/lib", 0o755}, {"var/log", 0o755}, {"var/cache", 0o755}, {"var/tmp", 0o777 | fs.ModeSticky}, {"tmp", 0o777 | fs.ModeSticky},
	{"run/systemd/system", 0o755}, {"run/lock", 0o777 | fs.ModeSticky}, {"run/moai-lab/notify", 0o755}, {"run/moai-lab/cgroup", 0o755},
	{"proc", 0o555}, {"sys", 0o555}, {"dev/pts", 0o755}, {"dev/shm", 0o777 | fs.ModeSticky}, {"usr/local/bin", 0o755}, {"usr/local/sbin", 0o755},
	{"usr/local/lib/moai-lab", 0o755},
}

// copied are files of the machine of which a host has a copy: what the dynamic linker looks into.
var copied = []string{"etc/ld.so.cache", "etc/ld.so.conf", "etc/os-release"}

// enter makes the host's root and goes into it for good. It runs in mount and process namespaces of the host's own.
func enter(s Spec) error {
	// First of all: nothing that is mounted from here on shows outside.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	for _, gone := range []string{"run", "tmp", "dev"} { // as after any power cut
		if err := os.RemoveAll(filepath.Join(s.Root, gone)); err != nil {
			return err
		}
	}
	for _, f := range folders {
		name := filepath.Join(s.Root, f.path)
		if err := os.MkdirAll(name, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(name, f.mode); err != nil {
			return err
		}
	}
	if err := showMachine(s.Root); err != nil {
		return err
	}
	if err := kernelFiles(s.Root); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(s.Root, "etc/passwd")); errors.Is(err, fs.ErrNotExist) {
		if err := seed(s); err != nil {
			return err
		}
	}
	if err := os.Chdir(s.Root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	// The machine's root lies on top now; without it there is no path to anything of the machine's that was not bound.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the machine's root: %w", err)
	}
	return os.Chdir("/")
}

// showMachine binds the machine's programs and libraries, read-only. /usr is bound by its parts, for /usr/local is the
// host's own.
func showMachine(root string) error {
	for _, name := range shown {
		if err := show("/"+name, filepath.Join(root, name)); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir("/usr")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != "local" {
			if err := show("/usr/"+e.Name(), filepath.Join(root, "usr", e.Name())); err != nil {
				return err
			}
		}
	}
	err = show("/etc/alternatives", filepath.Join(root, "etc/alternatives"))
	return err
}

// show makes what is at one of the machine's paths seen at another: a link as the same link, a folder bound.
func show(from, to string) error {
	info, err := os.Lstat(from)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		if err := os.Symlink(target, to); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	case !info.IsDir():
		return nil
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	return bindReadOnly(from, to)
}

// bindReadOnly binds a tree and makes all of it read-only.
func bindReadOnly(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", from, err)
	}
	err := unix.MountSetattr(unix.AT_FDCWD, to, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID})
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("make %s read-only: %w", to, err)
	}
	// Before Linux 5.12 only the top can be changed at once, and flags that the machine has set must be kept.
	var st unix.Statfs_t
	if err := unix.Statfs(to, &st); err != nil {
		return err
	}
	kept := uintptr(st.Flags) & (unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RELATIME)
	if err := unix.Mount("", to, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|kept, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", to, err)
	}
	return nil
}

// kernelFiles mounts /proc and makes /dev.
func kernelFiles(root string) error {
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, d := range devices {
		node := filepath.Join(root, "dev", d)
		if err := os.WriteFile(node, nil, 0o666); err != nil {
			return err
		}
		if err := unix.Mount("/dev/"+d, node, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind /dev/%s: %w", d, err)
		}
	}
	if err := unix.Mount("devpts", filepath.Join(root, "dev/pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	for name, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, filepath.Join(root, "dev", name)); err != nil {
			return err
		}
	}
	return nil
}

// seed writes what makes a new host itself.
func seed(s Spec) error {
	db := account.DB{
		Users:  []account.User{{Name: "root", Comment: "root", Home: "/root", Shell: "/bin/sh"}},
		Groups: []account.Group{{Name: "root"}, {Name: "tty", GID: 5}, {Name: "video", GID: 44}, {Name: "nogroup", GID: 65534}},
	}
	if err := db.AddUser(account.User{Name: s.User, Home: "/home/" + s.User, Shell: "/bin/sh"}, "", false); err != nil {
		return err
	}
	if err := db.AddGroup("render", true); err != nil {
		return err
	}
	db.Users = append(db.Users, account.User{Name: "nobody", UID: 65534, GID: 65534, Comment: "nobody", Home: "/nonexistent", Shell: "/usr/sbin/nologin"})
	passwd, group := db.Text()
	owned := map[string]string{}
	files := append(slices.Clone(s.Files), File{Path: "/etc/passwd", Content: passwd, Mode: 0o644}, File{Path: "/etc/group", Content: group, Mode: 0o644},
		File{Path: "/etc/nsswitch.conf", Content: "passwd: files\ngroup: files\nshadow: files\nhosts: files\n", Mode: 0o644})
	for _, name := range copied {
		if text, err := os.ReadFile("/" + name); err == nil {
			files = append(files, File{Path: "/" + name, Content: string(text), Mode: 0o644})
		}
	}
	for _, f := range files {
		name := filepath.Join(s.Root, f.Path)
		if err := makeParents(s, filepath.Dir(name), f.Owned, owned); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(f.Content), fs.FileMode(f.Mode)); err != nil {
			return err
		}
		if err := give(s, name, f.Owned, owned); err != nil {
			return err
		}
	}
	text, err := json.Marshal(owned)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.Root, ownersFile), text, 0o600); err != nil {
		return err
	}
	for link, target := range s.Links {
		name := filepath.Join(s.Root, link)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(target, name); err != nil {
			return err
		}
	}
	for _, tool := range tools() {
		if err := os.Symlink(Program, filepath.Join(s.Root, "usr/local/bin", tool)); err != nil {
			return err
		}
	}
	return nil
}

// makeParents makes the folders above a file; those below /home are their user's, and for nobody else.
func makeParents(s Spec, dir string, own bool, owned map[string]string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := makeParents(s, filepath.Dir(dir), own, owned); err != nil {
		return err
	}
	mode := fs.FileMode(0o755)
	if own && strings.HasPrefix(dir, filepath.Join(s.Root, "home")+"/") {
		mode = 0o700
	}
	if err := os.Mkdir(dir, mode); err != nil {
		return err
	}
	return give(s, dir, own, owned)
}

// give notes that a file is the host's user's.
func give(s Spec, name string, own bool, owned map[string]string) error {
	if !own {
		return nil
	}
	info, err := os.Lstat(name)
	if err == nil {
		owned[inode(info)] = s.User + ":" + s.User
	}
	return err
}
