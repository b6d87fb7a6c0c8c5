package guest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestFormatStat(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		make func(string) error
		want string
	}{
		"file":  {func(p string) error { return os.WriteFile(p, []byte("abc"), 0o640) }, "640 moai moai 3 regular file"},
		"empty": {func(p string) error { return os.WriteFile(p, nil, 0o600) }, "600 moai moai 0 regular empty file"},
		"link":  {func(p string) error { return os.Symlink("x", p) }, "777 moai moai 1 symbolic link"},
	} {
		p := filepath.Join(dir, name)
		if err := c.make(p); err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(p)
		if err != nil {
			t.Fatal(err)
		}
		if got := formatStat("%a %U %G %s %F", p, "moai", "moai", info); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	info, err := os.Lstat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := formatStat("%F%% %n", "d", "", "", info); got != "directory% d" {
		t.Errorf("directory: %q", got)
	}
}

func TestOwners(t *testing.T) {
	o := &owners{known: map[string]string{"1.2": "a:b"}}
	if got := o.get([]string{"1.2", "1.3"}).Stdout; got != "a:b\nroot:root\n" {
		t.Errorf("%q", got)
	}
	if err := o.set(nil); err == nil {
		t.Error("no owner is taken for one")
	}
}

func TestToolsDoNotHideTheProgramItself(t *testing.T) {
	if got := tools(); !slices.IsSorted(got) || !slices.Contains(got, "systemctl") || slices.Contains(got, "lab") {
		t.Errorf("%v", got)
	}
}
