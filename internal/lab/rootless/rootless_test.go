package rootless

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/program"
)

func TestLongestRange(t *testing.T) {
	const text = "ann:100000:65536\nbob:165536:1000\n1003:231072:65536\nbob:300000:70000\nbroken:x:y\nbob:1\n"
	for _, c := range []struct {
		name, uid string
		want      int
	}{{"ann", "1001", 65536}, {"bob", "1002", 70000}, {"eve", "1003", 65536}, {"broken", "1004", 0}, {"", "", 0}} {
		if got := longestRange(text, c.name, c.uid); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestUnifiedPath(t *testing.T) {
	for text, want := range map[string]string{
		"0::/user.slice/a.scope\n": "/user.slice/a.scope", "9:name=systemd:/x\n0::/\n": "/", "4:memory:/y\n": "", "": "",
	} {
		if got, ok := unifiedPath(text); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", text, got, ok)
		}
	}
}

func TestNamespaceHint(t *testing.T) {
	with := func(file, text string) func(string) ([]byte, error) {
		return func(name string) ([]byte, error) {
			if strings.HasSuffix(name, file) && file != "" {
				return []byte(text), nil
			}
			return nil, os.ErrNotExist
		}
	}
	for _, c := range []struct{ file, text, want string }{
		{"apparmor_restrict_unprivileged_userns", "1\n", "Ubuntu"},
		{"apparmor_restrict_unprivileged_userns", "0\n", "util-linux"},
		{"max_user_namespaces", "0\n", "user.max_user_namespaces is 0"},
		{"", "", "util-linux"},
	} {
		if got := namespaceHint(with(c.file, c.text)); !strings.Contains(got, c.want) {
			t.Errorf("%v: %q", c, got)
		}
	}
}

// TestPlaceThatIsGone: a holder that ended, or whose id another process has now, is no place.
func TestPlaceThatIsGone(t *testing.T) {
	p := Place{Name: "a", File: filepath.Join(t.TempDir(), "places", "a")}
	for name, r := range map[string]*record{
		"never made": nil,
		"ended":      {Holder: 1 << 30, Started: "1"},
		"another":    {Holder: os.Getpid(), Started: "1"},
	} {
		if r != nil {
			if err := p.write(*r); err != nil {
				t.Fatal(err)
			}
		}
		if ok, err := p.Exists(); ok || err != nil {
			t.Errorf("%s: exists %v, %v", name, ok, err)
		}
		if p.Inside() {
			t.Errorf("%s: this process is not inside", name)
		}
		if _, err := p.Enter(t.Context(), "/"); err == nil {
			t.Errorf("%s: entered", name)
		}
	}
	birth, err := program.Birth(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.write(record{Holder: os.Getpid(), Started: birth}); err != nil {
		t.Fatal(err)
	}
	if ok, err := p.Exists(); !ok || err != nil {
		t.Errorf("one that lives: %v, %v", ok, err)
	}
}

func TestEndOfNothing(t *testing.T) {
	p := Place{Name: "a", File: filepath.Join(t.TempDir(), "a")}
	if err := p.End(t.Context()); err != nil {
		t.Errorf("never made: %v", err)
	}
	if err := p.write(record{Holder: 1 << 30, Cgroup: filepath.Join(t.TempDir(), "gone")}); err != nil {
		t.Fatal(err)
	}
	if err := p.End(t.Context()); err != nil {
		t.Errorf("ended by itself: %v", err)
	}
	if _, err := os.Stat(p.File); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was written down is left: %v", err)
	}
}

// TestCheckSaysWhy: as root, or where something is missing, there is a reason; a machine that can gives none.
func TestCheckSaysWhy(t *testing.T) {
	err := Check(t.Context())
	if os.Geteuid() == 0 && (err == nil || !strings.Contains(err.Error(), "ordinary user")) {
		t.Errorf("as root: %v", err)
	}
	t.Logf("Check: %v", err)
}
