package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// chownTool is chown: the server keeps the names.
func chownTool(args []string) int {
	var words []string
	recursive := false
	for i, a := range args {
		if a == "--" {
			words = append(words, args[i+1:]...)
			break
		}
		switch a {
		case "-R", "--recursive":
			recursive = true
		case "-h", "--no-dereference", "-v", "-f":
		default:
			words = append(words, a)
		}
	}
	if len(words) < 2 {
		fmt.Fprintln(os.Stderr, "chown: missing operand")
		return 1
	}
	db, err := readAccounts()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chown:", err)
		return 1
	}
	user, group, hasGroup := strings.Cut(words[0], ":")
	u, ok := db.User(user)
	if !hasGroup {
		group = "root"
	}
	g, gok := db.Group(group)
	if !ok || !gok {
		fmt.Fprintf(os.Stderr, "chown: invalid user: '%s'\n", words[0])
		return 1
	}
	q := Request{Do: "chown", Args: []string{u.Name + ":" + g.Name}}
	for _, name := range words[1:] {
		err := filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil {
				q.Args = append(q.Args, inode(info))
			}
			if !recursive && d.IsDir() {
				return fs.SkipDir
			}
			return err
		})
		if err != nil {
			fmt.Fprintf(os.Stderr, "chown: cannot access '%s': %s\n", name, reason(err))
			return 1
		}
	}
	return ask(q)
}

// idTool is id: that is what "id -u NAME" says. The rest is the machine's id on the host's
// own account database.
func idTool(args []string) int {
	words := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--" })
	if len(words) != 2 || words[0] != "-u" {
		return real("id", args)
	}
	db, err := readAccounts()
	if err != nil {
		fmt.Fprintln(os.Stderr, "id:", err)
		return 1
	}
	if _, ok := db.User(words[1]); !ok {
		fmt.Fprintf(os.Stderr, "id: '%s': no such user\n", words[1])
		return 1
	}
	fmt.Println(0)
	return 0
}

// statTool is stat -c: owners come from the server.
func statTool(args []string) int {
	format, follow := "", false
	var names []string
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "--":
			names = append(names, args[i+1:]...)
			i = len(args)
		case a == "-L":
			follow = true
		case a == "-c" && i+1 < len(args):
			i++
			format = args[i]
		case strings.HasPrefix(a, "-"):
			return real("stat", args)
		default:
			names = append(names, a)
		}
	}
	if format == "" || len(names) == 0 {
		return real("stat", args)
	}
	status := 0
	for _, name := range names {
		look := os.Lstat
		if follow {
			look = os.Stat
		}
		info, err := look(name)
		if err != nil {
			fmt.Fprintf(os.Stderr, "stat: cannot statx '%s': %s\n", name, reason(err))
			status = 1
			continue
		}
		owner, group := "root", "root"
		if strings.Contains(format, "%U") || strings.Contains(format, "%G") {
			r, err := Ask(context.Background(), ControlPath, Request{Do: "owner", Args: []string{inode(info)}})
			if err != nil {
				fmt.Fprintln(os.Stderr, "stat:", err)
				return 1
			}
			owner, group, _ = strings.Cut(strings.TrimSpace(r.Stdout), ":")
		}
		fmt.Println(formatStat(format, name, owner, group, info))
	}
	return status
}

// reason is an error as the C library words it.
func reason(err error) string {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err.Error()
	}
	if text, ok := words[errno]; ok {
		return text
	}
	return errno.Error()
}

// words are the errors that scripts know by their text.
var words = map[syscall.Errno]string{
	syscall.ENOENT: "No such file or directory", syscall.ENOTDIR: "Not a directory", syscall.EACCES: "Permission denied",
}

// formatStat renders the directives that are asked for here; others stay as they are.
func formatStat(format, name, owner, group string, info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		st = &syscall.Stat_t{}
	}
	return strings.NewReplacer(
		"%a", fmt.Sprintf("%o", st.Mode&0o7777), "%U", owner, "%G", group, "%s", fmt.Sprint(st.Size), "%F", kind(info),
		"%d", fmt.Sprint(st.Dev), "%i", fmt.Sprint(st.Ino), "%Y", fmt.Sprint(st.Mtim.Sec), "%n", name, "%u", fmt.Sprint(st.Uid), "%g", fmt.Sprint(st.Gid),
		"%%", "%",
	).Replace(format)
}

// kind is a file's type in stat's words.
func kind(info fs.FileInfo) string {
	switch m := info.Mode(); {
	case m.IsRegular() && info.Size() == 0:
		return "regular empty file"
	case m.IsRegular():
		return "regular file"
	case m.IsDir():
		return "directory"
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeNamedPipe != 0:
		return "fifo"
	case m&fs.ModeCharDevice != 0:
		return "character special file"
	}
	return "block special file"
}
