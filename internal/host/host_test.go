package host_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/host"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh/sshtest"
)

// bed is a host to test on: the machine in memory, or real scripts in a real shell, below a directory of the test. Both
// must behave the same, since other packages trust the machine.
type bed struct {
	name   string
	h      *host.Host
	server *sshtest.Server
	dir    string // everything the test does is below
	owner  string
	group  string
	age    func(d time.Duration) // lets the held lock age
	// again is another Host on the same machine, as another process has it.
	again func() *host.Host
}

func beds(t *testing.T, opts host.Options, f func(t *testing.T, b *bed)) {
	t.Run("machine", func(t *testing.T) {
		m := sshtest.NewMachine(t)
		s := m.Serve()
		o := opts
		o.Trees = []string{"/var/lib/moai"}
		open := func() *host.Host { return host.New(connect(t, s), o) }
		f(t, &bed{name: "machine", h: open(), server: s, dir: "/var/lib/moai", owner: "root", group: "root", age: m.Advance, again: open})
	})
	t.Run("shell", func(t *testing.T) {
		for _, tool := range []string{"sh", "sha256sum", "stat", "flock", "mktemp", "gzip"} {
			if _, err := exec.LookPath(tool); err != nil {
				t.Skipf("this machine has no %s", tool)
			}
		}
		dir := t.TempDir()
		s := sshtest.New(t, sshtest.Shell(dir))
		o := opts
		o.LockPath, o.FencePath, o.Trees = filepath.Join(dir, "lock"), filepath.Join(dir, "state", "fence"), []string{filepath.Join(dir, "d")}
		me, err := user.Current()
		if err != nil {
			t.Fatal(err)
		}
		g, err := user.LookupGroupId(me.Gid)
		if err != nil {
			t.Fatal(err)
		}
		open := func() *host.Host { return host.New(connect(t, s), o) }
		f(t, &bed{
			name: "shell", h: open(), server: s, dir: filepath.Join(dir, "d"), owner: me.Username, group: g.Name, again: open,
			age: func(d time.Duration) {
				then := time.Now().Add(-d)
				if err := os.Chtimes(o.LockPath, then, then); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

func connect(t *testing.T, s *sshtest.Server) *ssh.Conn {
	t.Helper()
	p := ssh.NewPool(ssh.Options{})
	t.Cleanup(p.Close)
	c, err := p.Conn(s.Target())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (b *bed) file(name, content string, mode uint32) host.File {
	return host.File{Path: b.dir + "/" + name, Content: []byte(content), Mode: mode, Owner: b.owner, Group: b.group}
}

func TestFiles(t *testing.T) {
	beds(t, host.Options{}, func(t *testing.T, b *bed) {
		ctx := t.Context()
		f := b.file("etc/a 'b' $x.json", "hello\n", 0o640)
		put := func(f host.File, want bool) {
			t.Helper()
			if changed, err := b.h.PutFile(ctx, f); err != nil || changed != want {
				t.Fatalf("PutFile: changed %v, %v; want changed %v", changed, err, want)
			}
		}
		put(f, true)
		put(f, false)
		f.Mode = 0o600
		put(f, true)
		f.Content = []byte("other\n")
		put(f, true)
		states, units, err := b.h.Inspect(ctx, []string{f.Path, b.dir + "/no", b.dir + "/etc", f.Path + "/below"}, nil)
		if err != nil || len(units) != 0 {
			t.Fatal(err)
		}
		if s := states[0]; !f.Matches(s) || s.Size != 6 || s.Kind != "file" {
			t.Errorf("file: %+v", s)
		}
		if states[1].Exists() || states[2].Kind != "directory" || states[3].Exists() {
			t.Errorf("states: %+v", states[1:])
		}
		content, err := b.h.ReadFile(ctx, f.Path)
		if err != nil || string(content) != "other\n" {
			t.Errorf("ReadFile: %q %v", content, err)
		}
		if _, err := b.h.ReadFile(ctx, b.dir+"/no"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("ReadFile of nothing: %v", err)
		}
		if _, err := b.h.ReadFile(ctx, b.dir+"/etc"); err == nil || errors.Is(err, fs.ErrNotExist) || !errors.Is(err, host.ErrConflict) {
			t.Errorf("ReadFile of a directory: %v", err)
		}
		if _, err := b.h.PutFile(ctx, b.file("etc", "x", 0)); !errors.Is(err, host.ErrConflict) {
			t.Errorf("PutFile over a directory: %v", err)
		}
		if r, err := b.h.RemoveDir(ctx, b.dir+"/etc"); err != nil || r != host.Kept {
			t.Errorf("RemoveDir of a full one: %v %v", r, err)
		}
		for _, want := range []host.Removal{host.Removed, host.Gone} {
			if r, err := b.h.RemoveFile(ctx, f.Path); err != nil || r != want {
				t.Errorf("RemoveFile: %v %v, want %v", r, err, want)
			}
		}
		if _, err := b.h.RemoveFile(ctx, b.dir+"/etc"); !errors.Is(err, host.ErrConflict) {
			t.Errorf("RemoveFile of a directory: %v", err)
		}
		for _, want := range []host.Removal{host.Removed, host.Gone} {
			if r, err := b.h.RemoveDir(ctx, b.dir+"/etc"); err != nil || r != want {
				t.Errorf("RemoveDir: %v %v, want %v", r, err, want)
			}
		}
	})
}

// TestLargeFile: a payload arrives whole, compressed or not, and an empty one too.
func TestLargeFile(t *testing.T) {
	random := make([]byte, 3<<20)
	src := rand.NewChaCha8([32]byte{1})
	if _, err := src.Read(random); err != nil {
		t.Fatal(err)
	}
	beds(t, host.Options{}, func(t *testing.T, b *bed) {
		for name, content := range map[string][]byte{"random": random, "zeroes": make([]byte, 2<<20), "empty": nil} {
			f := b.file(name, string(content), 0o755)
			if changed, err := b.h.PutFile(t.Context(), f); err != nil || !changed {
				t.Fatalf("%s: %v %v", name, changed, err)
			}
			states, _, err := b.h.Inspect(t.Context(), []string{f.Path}, nil)
			if err != nil || !f.Matches(states[0]) {
				t.Errorf("%s: %+v %v", name, states, err)
			}
		}
	})
}

// TestPutLeavesNothingWhenCut: an upload that does not arrive whole changes nothing and leaves no temporary file.
func TestPutLeavesNothingWhenCut(t *testing.T) {
	dir := t.TempDir()
	s := sshtest.New(t, sshtest.Shell(dir))
	c := connect(t, s)
	target := filepath.Join(dir, "f")
	if err := os.WriteFile(target, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	h := host.New(&shortening{Conn: c}, host.Options{LockPath: filepath.Join(dir, "lock")})
	_, err = h.PutFile(t.Context(), host.File{Path: target, Content: []byte("new content"), Owner: me.Username, Group: me.Gid})
	if !errors.Is(err, host.ErrConflict) || !strings.Contains(err.Error(), "sha256 of what arrived") {
		t.Errorf("got %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v %v", entries, err)
	}
	if b, err := os.ReadFile(target); err != nil || string(b) != "old" {
		t.Errorf("file is %q %v", b, err)
	}
}

// shortening loses the last byte of every input.
type shortening struct{ *ssh.Conn }

func (s *shortening) Run(ctx context.Context, cmd ssh.Cmd) (ssh.Result, error) {
	if r, ok := cmd.Stdin.(*bytes.Reader); ok && r.Len() > 0 {
		b := make([]byte, r.Len()-1)
		if _, err := r.Read(b); err != nil {
			return ssh.Result{}, err
		}
		cmd.Stdin = bytes.NewReader(b)
	}
	return s.Conn.Run(ctx, cmd)
}

func TestTrees(t *testing.T) {
	beds(t, host.Options{}, func(t *testing.T, b *bed) {
		ctx := t.Context()
		for _, bad := range []string{"/", "/etc", "/usr/bin", b.dir + "x", b.dir + "/../..", "relative", ""} {
			if _, err := b.h.RemoveTree(ctx, bad); err == nil {
				t.Errorf("RemoveTree(%q) was allowed", bad)
			}
		}
		if _, err := b.h.PutFile(ctx, b.file("a/b/c", "x", 0)); err != nil {
			t.Fatal(err)
		}
		if err := b.h.MakeDir(ctx, b.dir+"/d", 0o750, b.owner, b.group); err != nil {
			t.Fatal(err)
		}
		states, _, err := b.h.Inspect(ctx, []string{b.dir + "/d"}, nil)
		if err != nil || states[0].Mode != 0o750 || states[0].Kind != "directory" {
			t.Errorf("%+v %v", states, err)
		}
		for _, want := range []host.Removal{host.Removed, host.Gone} {
			if r, err := b.h.RemoveTree(ctx, b.dir); err != nil || r != want {
				t.Errorf("RemoveTree: %v %v, want %v", r, err, want)
			}
		}
	})
}

// TestCannotAskIsNotGone: a host that cannot tell does not prove absence.
func TestCannotAskIsNotGone(t *testing.T) {
	m := sshtest.NewMachine(t)
	s := m.Serve()
	h := host.New(connect(t, s), host.Options{})
	for verb, ask := range map[string]func() error{
		"inspect":     func() error { _, _, err := h.Inspect(t.Context(), []string{"/x"}, nil); return err },
		"read-file":   func() error { _, err := h.ReadMarker(t.Context()); return err },
		"remove":      func() error { _, err := h.RemoveFile(t.Context(), "/x"); return err },
		"remove-user": func() error { _, err := h.RemoveUser(t.Context(), "moai", false); return err },
		"unit":        func() error { return h.Stop(t.Context(), "x.service") },
	} {
		m.FailNext(verb, sshtest.Reply{Exit: 74, Stderr: "moai: cannot look: Input/output error\n"})
		if err := ask(); !errors.Is(err, host.ErrCannotAsk) || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "Input/output error") {
			t.Errorf("%s: %v", verb, err)
		}
		m.FailNext(verb, sshtest.Reply{Stdout: "Welcome to this host!\n"})
		if err := ask(); !errors.Is(err, host.ErrCannotAsk) {
			t.Errorf("%s with noise: %v", verb, err)
		}
	}
}

// TestScriptsAskRight runs the real scripts where a path cannot be looked at.
func TestScriptsAskRight(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	stat := "#!/bin/sh\nfor a; do :; done\necho \"stat: cannot statx '$a': Permission denied\" >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "stat"), []byte(stat), 0o700); err != nil {
		t.Fatal(err)
	}
	s := sshtest.New(t, sshtest.Shell(dir, "PATH="+bin+":"+os.Getenv("PATH")))
	h := host.New(connect(t, s), host.Options{LockPath: filepath.Join(dir, "lock")})
	for name, ask := range map[string]func() error{
		"inspect": func() error { _, _, err := h.Inspect(t.Context(), []string{"/x"}, nil); return err },
		"read":    func() error { _, err := h.ReadFile(t.Context(), "/x"); return err },
		"remove":  func() error { _, err := h.RemoveFile(t.Context(), "/x"); return err },
	} {
		if err := ask(); !errors.Is(err, host.ErrCannotAsk) || !strings.Contains(err.Error(), "Permission denied") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMarker(t *testing.T) {
	m := sshtest.NewMachine(t)
	h := host.New(connect(t, m.Serve()), host.Options{})
	if got, err := h.ReadMarker(t.Context()); err != nil || got != nil {
		t.Fatalf("%+v %v", got, err)
	}
	want := host.Marker{Fleet: "prod", Resource: "moai_node.a", Writer: "x", MoaidSHA256: "00", Created: []host.Account{host.UserAccount("moai")}}
	if err := h.WriteMarker(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if got, err := h.ReadMarker(t.Context()); err != nil || !reflect.DeepEqual(*got, want) {
		t.Fatalf("%+v %v", got, err)
	}
	m.SetFile(host.MarkerPath, sshtest.Entry{Content: []byte("{")})
	if got, err := h.ReadMarker(t.Context()); err == nil || got != nil {
		t.Errorf("a damaged marker was read: %+v", got)
	}
	if _, err := h.RemoveFile(t.Context(), host.MarkerPath); err != nil {
		t.Error(err)
	}
}

// TestNoShellText: whatever a name holds, it is data.
func TestNoShellText(t *testing.T) {
	dir := t.TempDir()
	s := sshtest.New(t, sshtest.Shell(dir))
	h := host.New(connect(t, s), host.Options{LockPath: filepath.Join(dir, "lock")})
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"$(touch pwned)", "`touch pwned`", "; touch pwned #", "-rf", "a b", "é", `\`, `"`, "'"} {
		f := host.File{Path: filepath.Join(dir, name), Content: []byte(name), Owner: me.Username, Group: me.Gid}
		if _, err := h.PutFile(t.Context(), f); err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if b, err := h.ReadFile(t.Context(), f.Path); err != nil || string(b) != name {
			t.Errorf("%q: read %q %v", name, b, err)
		}
		if r, err := h.RemoveFile(t.Context(), f.Path); err != nil || r != host.Removed {
			t.Errorf("%q: %v %v", name, r, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}
