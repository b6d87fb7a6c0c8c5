package tree

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestUnder(t *testing.T) {
	const table = `22 1 8:1 / / rw - ext4 /dev/a rw
30 22 0:30 / /s/lab/h/disk rw - tmpfs moai rw
31 22 0:31 / /s/lab/h/root rw - overlay moai rw
32 31 0:32 / /s/lab/h/root/a\040b rw - tmpfs x rw
33 22 0:33 / /s/lab2 rw - tmpfs x rw
short line
`
	for dir, want := range map[string][]string{
		"/s/lab":        {"/s/lab/h/disk", "/s/lab/h/root", "/s/lab/h/root/a b"},
		"/s/lab/h/root": {"/s/lab/h/root", "/s/lab/h/root/a b"},
		"/s/lab2":       {"/s/lab2"},
		"/nowhere":      nil,
	} {
		if got := under(table, dir); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", dir, got, want)
		}
	}
}

func FuzzUnder(f *testing.F) {
	f.Add("30 22 0:30 / /s/lab rw - tmpfs moai rw\n", "/s")
	f.Fuzz(func(t *testing.T, table, dir string) {
		for _, m := range under(table, dir) {
			if m != dir && !strings.HasPrefix(m, strings.TrimSuffix(dir, "/")+"/") {
				t.Errorf("%q is not under %q", m, dir)
			}
		}
	})
}

func TestRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it is not there
		if err := Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
}
