package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// owners keeps who owns which file, by name, for to the kernel there is one user only. A file is known by its number
// on the host's own file system, which numbers no two files the same.
type owners struct {
	mu    sync.Mutex
	known map[string]string // inode → "user:group"
}

// ownersFile lies in the lab's own folder: it outlives a power cut, as owners do.
const ownersFile = "/usr/local/lib/moai-lab/owners"

func (o *owners) load() {
	o.known = map[string]string{}
	if text, err := os.ReadFile(ownersFile); err == nil {
		_ = json.Unmarshal(text, &o.known) // of a lab that was cut off: then all is root's
	}
}

// set takes "user:group" and the numbers of files.
func (o *owners) set(args []string) error {
	if len(args) < 1 {
		return errors.New("chown: no owner")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, inode := range args[1:] {
		if args[0] == "root:root" {
			delete(o.known, inode)
			continue
		}
		o.known[inode] = args[0]
	}
	text, err := json.Marshal(o.known)
	if err != nil {
		return err
	}
	return os.WriteFile(ownersFile, text, 0o600)
}

func (o *owners) get(args []string) Reply {
	o.mu.Lock()
	defer o.mu.Unlock()
	var b strings.Builder
	for _, inode := range args {
		who, ok := o.known[inode]
		if !ok {
			who = "root:root"
		}
		b.WriteString(who + "\n")
	}
	return Reply{Stdout: b.String()}
}

func inode(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d.%d", st.Dev, st.Ino)
}

// chown gives a folder to a unit's user.
func (h *server) chown(name, userName, group string) error {
	db, err := readAccounts()
	if err != nil {
		return err
	}
	if userName == "" {
		userName = "root"
	}
	u, ok := db.User(userName)
	if !ok {
		return fmt.Errorf("there is no user %s", userName)
	}
	if group == "" {
		group = strconv.Itoa(u.GID)
	}
	g, ok := db.Group(group)
	if !ok {
		return fmt.Errorf("there is no group %s", group)
	}
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	return h.owners.set([]string{u.Name + ":" + g.Name, inode(info)})
}

// account changes the account database as useradd and its kin do.
func (h *server) account(args []string) Reply {
	accountsLock.Lock()
	defer accountsLock.Unlock()
	db, err := readAccounts()
	if err != nil {
		return reply("", err)
	}
	if err := db.Do(args[0], args[1:]); err != nil {
		return reply("", fmt.Errorf("%s: %w", args[0], err))
	}
	passwd, group := db.Text()
	return reply("", errors.Join(replaceFile("/etc/passwd", passwd), replaceFile("/etc/group", group)))
}

func replaceFile(name, text string) error {
	tmp := filepath.Join(filepath.Dir(name), ".lab-"+filepath.Base(name))
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}
