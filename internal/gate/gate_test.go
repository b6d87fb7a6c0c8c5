package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDifferences(t *testing.T) {
	cases := []struct {
		name          string
		before, after map[string]string
		want          []string // parts of the error; none: no error
	}{
		{"the same", map[string]string{"a.md": "1", "b.md": "2"}, map[string]string{"a.md": "1", "b.md": "2"}, nil},
		{"nothing", nil, nil, nil},
		{"changed", map[string]string{"a.md": "1", "b.md": "2"}, map[string]string{"a.md": "1", "b.md": "3"}, []string{"b.md is out of date"}},
		{"added", map[string]string{"a.md": "1"}, map[string]string{"a.md": "1", "b.md": ""}, []string{"b.md is missing"}},
		{"removed", map[string]string{"a.md": "1", "b.md": ""}, map[string]string{"a.md": "1"}, []string{"b.md documents nothing any more"}},
		{"all at once", map[string]string{"a.md": "1", "b.md": "2"}, map[string]string{"b.md": "3", "c.md": "4"},
			[]string{"a.md documents nothing any more", "b.md is out of date", "c.md is missing"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := differences(c.before, c.after)
			if (err != nil) != (len(c.want) > 0) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("no %q in %v", w, err)
				}
			}
			if err != nil && len(c.want) == 1 && strings.Contains(err.Error(), "a.md") {
				t.Errorf("a.md did not change: %v", err)
			}
		})
	}
}

func TestRenameKey(t *testing.T) {
	for _, key := range []string{"registry.terraform.io/moai-dev/moai", "registry.opentofu.org/moai-dev/moai"} {
		got, err := renameKey([]byte(`{"format_version":"1.0","provider_schemas":{"` + key + `":{"provider":{"version":3}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			FormatVersion   string                     `json:"format_version"`
			ProviderSchemas map[string]json.RawMessage `json:"provider_schemas"`
		}
		if err := json.Unmarshal(got, &doc); err != nil {
			t.Fatal(err)
		}
		if doc.FormatVersion != "1.0" || len(doc.ProviderSchemas) != 1 || string(doc.ProviderSchemas["moai"]) != `{"provider":{"version":3}}` {
			t.Errorf("%s: got %s", key, got)
		}
	}
	for name, raw := range map[string]string{
		"no JSON":       `{`,
		"a list":        `[]`,
		"no schemas":    `{}`,
		"empty schemas": `{"provider_schemas":{}}`,
		"two providers": `{"provider_schemas":{"a":{},"b":{}}}`,
	} {
		if got, err := renameKey([]byte(raw)); err == nil {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

// write makes files, named relative to dir.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExampleDirs(t *testing.T) {
	root := t.TempDir()
	if dirs, err := exampleDirs(root); err == nil {
		t.Errorf("no example is an error, got %q", dirs)
	}
	write(t, root, map[string]string{
		"quickstart/main.tf": "", "quickstart/variables.tf": "", "provider/provider.tf": "",
		"resources/moai_node/resource.tf": "", "resources/moai_node/import.sh": "", "README.md": "",
	})
	got, err := exampleDirs(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(root, "provider"), filepath.Join(root, "quickstart"), filepath.Join(root, "resources", "moai_node")}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := exampleDirs(filepath.Join(root, "none")); err == nil {
		t.Error("a folder that is not there is an error")
	}
}

func TestPages(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"index.md": "i", "resources/node.md": "n", "resources/picture.svg": "", "protocols/wire.md": "", "decisions/0001.md": "",
	})
	got, err := pages(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := differences(map[string]string{"index.md": "i", filepath.Join("resources", "node.md"): "n"}, got); err != nil {
		t.Error(err)
	}
}

// TestPlant: each way to plant a fault is undone to the byte.
func TestPlant(t *testing.T) {
	cases := []struct {
		name string
		f    fault
		want string
	}{
		{"a new file", fault{file: "new", text: "x"}, "x"},
		{"behind", fault{file: "a", text: "x"}, "one two two x"},
		{"instead", fault{file: "a", old: "two", text: "x"}, "one x two "},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, map[string]string{"a": "one two two "})
			before := read(t, dir)
			undo, err := c.f.plant(dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := read(t, dir)[c.f.file]; got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if err := undo(); err != nil {
				t.Fatal(err)
			}
			if after := read(t, dir); len(after) != len(before) || after["a"] != before["a"] {
				t.Errorf("undone: %q, before: %q", after, before)
			}
		})
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "one"})
	if _, err := (fault{file: "a", old: "two", text: "x"}).plant(dir); err == nil {
		t.Error("a fault that cannot be planted is an error")
	}
}

// read gives the files of dir, which has no folders.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(b)
	}
	return out
}

// TestFormatsPageIsUpToDate: the guide is what the code says. tfplugindocs copies
// guides as they are.
func TestFormatsPageIsUpToDate(t *testing.T) {
	want, err := formatsPage()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"templates", "docs"} {
		got, err := os.ReadFile(filepath.Join("..", "..", dir, filepath.FromSlash(formatsGuide)))
		if err != nil || string(got) != want {
			t.Errorf("%s/%s is out of date (%v): run go run ./internal/gate generate", dir, formatsGuide, err)
		}
	}
}
