package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAtLeast(t *testing.T) {
	for version, want := range map[string]bool{
		"1.11.4": true, "1.12.0-rc1": true, "1.10.9": false, "2.0.0": true, "0.13": false, "": false, "1": false, "x.y.z": false,
	} {
		if got := AtLeast(version, [2]int{1, 11}); got != want {
			t.Errorf("AtLeast(%q) = %v", version, got)
		}
	}
}

// program writes a stand-in for a CLI that tells a version, or fails.
func program(t *testing.T, dir, name, version string) {
	t.Helper()
	body := "#!/bin/sh\necho '{\"terraform_version\": \"" + version + "\"}'\n"
	if version == "" {
		body = "#!/bin/sh\nexit 1\n"
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestFindCLI(t *testing.T) {
	cases := []struct {
		name  string
		path  map[string]string // programs on PATH and their versions
		built string            // version of the checkout's own; "": none
		named string            // by the variable, in the folder on PATH
		want  string            // name and version of the CLIs; or a part of the error
		fails bool
	}{
		{name: "none", fails: true, want: "or newer as terraform or tofu on PATH"},
		{name: "both", path: map[string]string{"terraform": "1.11.4", "tofu": "1.12.6"}, want: "terraform 1.11.4, tofu 1.12.6"},
		{name: "old and new", path: map[string]string{"terraform": "1.5.7", "tofu": "1.12.6"}, want: "tofu 1.12.6"},
		{name: "only old", path: map[string]string{"terraform": "1.5.7"}, fails: true, want: "terraform is 1.5.7"},
		{name: "broken", path: map[string]string{"tofu": ""}, fails: true, want: "tofu does not run"},
		{name: "built", built: "1.12.6", want: "tofu 1.12.6"},
		{name: "PATH before built", path: map[string]string{"tofu": "1.13.0"}, built: "1.12.6", want: "tofu 1.13.0"},
		{name: "beside Terraform", path: map[string]string{"terraform": "1.11.4"}, built: "1.12.6", want: "terraform 1.11.4, tofu 1.12.6"},
		{name: "named", path: map[string]string{"terraform": "1.11.4", "my-tofu": "1.12.0"}, named: "my-tofu", want: "tofu 1.12.0"},
		{name: "named and too old", path: map[string]string{"terraform": "1.11.4", "other": "1.0.0"}, named: "other", fails: true, want: "other is 1.0.0"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			checkout, path := t.TempDir(), t.TempDir()
			if err := os.WriteFile(filepath.Join(checkout, checkoutMarker), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for name, version := range c.path {
				program(t, path, name, version)
			}
			if c.built != "" {
				if err := os.Mkdir(filepath.Join(checkout, "bin"), 0o700); err != nil {
					t.Fatal(err)
				}
				program(t, filepath.Join(checkout, "bin"), "tofu", c.built)
			}
			t.Chdir(checkout)
			t.Setenv("PATH", path)
			t.Setenv(CLIVariable, "")
			if c.named != "" {
				t.Setenv(CLIVariable, filepath.Join(path, c.named))
			}
			first, err := FindCLI(t.Context())
			if c.fails {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("got %v and error %v, want %q", first, err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, cli := range FindCLIs(t.Context()) {
				got = append(got, cli.Name()+" "+cli.Version)
			}
			if s := strings.Join(got, ", "); s != c.want || !strings.HasPrefix(c.want, first.Name()) {
				t.Errorf("got %s, first %s; want %s", s, first.Name(), c.want)
			}
		})
	}
}

// TestEnsureCLIBuildsNothing: with a CLI on PATH, or one named, nothing is built.
func TestEnsureCLIBuildsNothing(t *testing.T) {
	checkout, path := t.TempDir(), t.TempDir()
	program(t, path, "terraform", "1.11.4")
	t.Chdir(checkout)
	t.Setenv("PATH", path)
	t.Setenv(CLIVariable, "")
	say := func(format string, args ...any) { t.Errorf("said: "+format, args...) }
	w := Workspace{Repo: checkout}
	if cli, err := w.EnsureCLI(t.Context(), say); err != nil || cli.Version != "1.11.4" {
		t.Errorf("on PATH: got %v, %v", cli, err)
	}
	t.Setenv(CLIVariable, filepath.Join(path, "not-there"))
	if cli, err := w.EnsureCLI(t.Context(), say); err == nil {
		t.Errorf("named and not there: got %v", cli)
	}
}

func TestPinnedTofu(t *testing.T) {
	for mod, want := range map[string]string{
		"require (\n\tgithub.com/opentofu/hcl/v2 v2.1.0\n\tgithub.com/opentofu/opentofu v1.12.6 // indirect\n)\n": "1.12.6",
		"require github.com/opentofu/opentofu v1.12.7\n":                                                          "1.12.7",
		"tool github.com/opentofu/opentofu/cmd/tofu\n":                                                            "",
	} {
		got, err := pinnedTofu([]byte(mod))
		if got != want || (err != nil) != (want == "") {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	mod, err := os.ReadFile(filepath.Join("..", "..", "tools", "opentofu", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pinnedTofu(mod); err != nil {
		t.Error(err)
	}
}
