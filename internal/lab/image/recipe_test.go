package image

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSuite(t *testing.T) {
	for text, want := range map[string]string{
		"ID=debian\nVERSION_CODENAME=trixie\n":     "trixie",
		"VERSION_CODENAME=\"trixie\"\nID='debian'": "trixie",
		"ID=ubuntu\nVERSION_CODENAME=noble\n":      "bookworm",
		"ID=debian\n":                              "bookworm",
		"":                                         "bookworm",
	} {
		if got := Suite(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestSources(t *testing.T) {
	const deb822 = "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n"
	files := map[string]string{
		"/etc/apt/sources.list.d/debian.sources": deb822,
		"/etc/apt/sources.list.d/vendor.sources": deb822, // somebody else's, with somebody else's key
		"/etc/apt/sources.list":                  "# deb http://mirror.example/debian bookworm main\n",
	}
	if got := Sources(files, "bookworm"); !slices.Equal(got, []string{"/etc/apt/sources.list.d/debian.sources"}) {
		t.Errorf("got %v", got)
	}
	if got := Sources(files, "trixie"); len(got) != 0 {
		t.Errorf("another suite: got %v", got)
	}
	files = map[string]string{"/etc/apt/sources.list": "deb [arch=amd64] http://mirror.example/debian bookworm main\n"}
	if got := Sources(files, "bookworm"); !slices.Equal(got, []string{"/etc/apt/sources.list"}) {
		t.Errorf("one-line style: got %v", got)
	}
}

func TestProxyOptions(t *testing.T) {
	dump := "APT \"\";\nAcquire::http::Proxy \"http://proxy.example:3128\";\nAcquire::https::Proxy \"\";\nAcquire::http::Timeout \"30\";\n"
	if got := ProxyOptions(dump); !slices.Equal(got, []string{`Acquire::http::Proxy "http://proxy.example:3128";`}) {
		t.Errorf("got %q", got)
	}
}

func TestCommand(t *testing.T) {
	r := Recipe{Suite: "bookworm", Packages: []string{"a", "b"}, Exclude: []string{"/usr/share/man/*"}}
	got := strings.Join(r.Command("/t", []string{"/s"}, []string{`X "1";`}), " ")
	want := `mmdebstrap --quiet --variant=minbase --include=a,b --dpkgopt=path-exclude=/usr/share/man/* --dpkgopt=force-unsafe-io --aptopt=X "1"; bookworm /t /s`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRecipeHasItsOwnName(t *testing.T) {
	a := DefaultRecipe("bookworm", "amd64")
	b := DefaultRecipe("bookworm", "amd64")
	if a.ID() != b.ID() || !strings.HasPrefix(a.ID(), "bookworm-") {
		t.Errorf("%s, %s", a.ID(), b.ID())
	}
	b.Packages = append(b.Packages, "curl")
	c := DefaultRecipe("bookworm", "arm64")
	if a.ID() == b.ID() || a.ID() == c.ID() {
		t.Error("another recipe, the same image")
	}
	if slices.ContainsFunc(a.Packages, func(p string) bool { return strings.HasPrefix(p, "python") }) {
		t.Error("the image must have no Python")
	}
}

func TestFinish(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"etc/ssh", "etc/systemd/system"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"etc/ssh/ssh_host_rsa_key", "etc/ssh/moduli", "etc/machine-id"} {
		if err := os.WriteFile(filepath.Join(root, f), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := finish(root, DefaultRecipe("bookworm", "amd64")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "etc/ssh/ssh_host_rsa_key")); !os.IsNotExist(err) {
		t.Error("a host key is left in the image")
	}
	if _, err := os.Stat(filepath.Join(root, "etc/ssh/moduli")); err != nil {
		t.Error(err)
	}
	if id, err := os.ReadFile(filepath.Join(root, "etc/machine-id")); err != nil || len(id) != 0 {
		t.Errorf("machine-id %q, %v", id, err)
	}
	if to, err := os.Readlink(filepath.Join(root, "etc/systemd/system/apt-daily.timer")); err != nil || to != "/dev/null" {
		t.Errorf("mask: %q, %v", to, err)
	}
}

func FuzzMachineText(f *testing.F) {
	f.Add("ID=debian\nVERSION_CODENAME=trixie\n", "trixie")
	f.Add("Acquire::http::Proxy \"http://proxy.example:3128\";\n", "")
	f.Add("deb [arch=amd64] http://mirror.example/debian bookworm main\n", "bookworm")
	f.Fuzz(func(t *testing.T, text, suite string) {
		if Suite(text) == "" {
			t.Error("no suite")
		}
		if got := Sources(map[string]string{"/etc/apt/sources.list": text}, suite); len(got) > 0 && !strings.Contains(text, suite) {
			t.Errorf("picked %v for %q", got, suite)
		}
		for _, o := range ProxyOptions(text) {
			if !strings.HasPrefix(o, "Acquire::http") || strings.Contains(o, "\n") {
				t.Errorf("option %q", o)
			}
		}
	})
}
