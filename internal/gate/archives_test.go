package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

const goodManifest = `{"version": 1, "metadata": {"protocol_versions": ["6.0"]}}`

// zipped makes an archive; modes are 0755 for the provider and 0644 for the rest.
func zipped(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for name, text := range files {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		h.SetMode(0o644)
		if strings.HasPrefix(name, project) {
			h.SetMode(0o755)
		}
		w, err := z.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestReadArchives(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		want  string
	}{
		"one":  {[]string{"terraform-provider-moai_0.1.2-rc.1_SHA256SUMS", "artifacts.json"}, "0.1.2-rc.1"},
		"none": {[]string{"artifacts.json"}, ""},
		"two":  {[]string{"terraform-provider-moai_0.1.2_SHA256SUMS", "terraform-provider-moai_0.1.3_SHA256SUMS"}, ""},
	} {
		dir := fstest.MapFS{}
		for _, f := range c.files {
			dir[f] = &fstest.MapFile{}
		}
		got, err := readArchives(dir)
		if got.Version != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: got %q, %v", name, got.Version, err)
		}
	}
}

// TestCheckRefuses: each thing that a registry would refuse is found before the programs are looked at.
func TestCheckRefuses(t *testing.T) {
	a := archives{Version: "1.2.3"}
	fresh := func() (fstest.MapFS, map[string][]byte) {
		content := map[string][]byte{a.manifestName(): []byte(goodManifest)}
		for _, target := range releaseTargets {
			content[a.zipName(target)] = zipped(t, map[string]string{"LICENSE": "l", a.binaryName(): "no program"})
		}
		return fstest.MapFS{}, content
	}
	sums := func(content map[string][]byte) string {
		var b strings.Builder
		for name, c := range content {
			sum := sha256.Sum256(c)
			b.WriteString(hex.EncodeToString(sum[:]) + "  " + name + "\n")
		}
		return b.String()
	}
	linux := a.zipName("linux_amd64")
	for name, c := range map[string]struct {
		spoil    func(content map[string][]byte)
		after    func(dir fstest.MapFS) // once the sums are made
		manifest string
		want     string
	}{
		"no program":          {want: "linux_amd64.zip: "},
		"other protocol":      {manifest: `{"version": 1, "metadata": {"protocol_versions": ["5.0"]}}`, want: "protocols [5.0]"},
		"one more file":       {spoil: func(c map[string][]byte) { c["extra.zip"] = nil }, want: "extra.zip"},
		"manifest not summed": {spoil: func(c map[string][]byte) { delete(c, a.manifestName()) }, want: "expected"},
		"an archive is missing": {
			after: func(dir fstest.MapFS) { delete(dir, linux) }, want: "linux_amd64.zip",
		},
		"changed after the sums": {
			after: func(dir fstest.MapFS) {
				dir[linux] = &fstest.MapFile{Data: zipped(t, map[string]string{"LICENSE": "L", a.binaryName(): ""})}
			}, want: linux + " has another SHA-256",
		},
		"name of another version": {
			spoil: func(c map[string][]byte) {
				c[linux] = zipped(t, map[string]string{"LICENSE": "l", "terraform-provider-moai_v1.2.4": ""})
			}, want: "terraform-provider-moai_v1.2.4",
		},
		"no licence": {
			spoil: func(c map[string][]byte) { c[linux] = zipped(t, map[string]string{a.binaryName(): ""}) }, want: "expected [LICENSE",
		},
		"no sums": {
			after: func(dir fstest.MapFS) { dir[a.sumsName()] = &fstest.MapFile{Data: []byte("abc  " + linux + "\n")} }, want: "no sum of a file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, content := fresh()
			if c.spoil != nil {
				c.spoil(content)
			}
			for n, b := range content {
				dir[n] = &fstest.MapFile{Data: b}
			}
			dir[a.sumsName()] = &fstest.MapFile{Data: []byte(sums(content))}
			if c.after != nil {
				c.after(dir)
			}
			manifest := goodManifest
			if c.manifest != "" {
				manifest = c.manifest
			}
			err := a.check(dir, []byte(manifest), nil, "/checkout")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestCheckProvider looks at this test's own program, which is built without -trimpath or with it.
func TestCheckProvider(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkProvider(binary, "plan9_mips", nil, "/nowhere"); err == nil {
		t.Error("a program of another platform, or with paths in it, is refused")
	}
	if err := checkProvider([]byte("#!/bin/sh\n"), "linux_amd64", nil, "/nowhere"); err == nil {
		t.Error("a script is refused")
	}
}

func TestUnzip(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, files map[string]string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, zipped(t, files), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	out := filepath.Join(dir, "a", "b")
	if err := unzip(write("good.zip", map[string]string{"terraform-provider-moai_v1": "x", "LICENSE": "l"}), out); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(out, "terraform-provider-moai_v1"))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("got %v, %v", info, err)
	}
	if err := unzip(write("bad.zip", map[string]string{"../LICENSE": "l"}), out); err == nil {
		t.Error("a name that leads out of the folder is refused")
	}
}

func TestFindEmulator(t *testing.T) {
	has := func(names ...string) func(string) (string, error) {
		return func(name string) (string, error) {
			for _, n := range names {
				if n == name {
					return "/usr/bin/" + n, nil
				}
			}
			return "", errors.New("not there")
		}
	}
	if got, err := findEmulator(has("qemu-aarch64-static")); err == nil && len(got) == 1 && got[0] != "/usr/bin/qemu-aarch64-static" {
		t.Errorf("got %v", got)
	}
	if got, err := findEmulator(has()); err == nil && len(got) > 0 {
		t.Errorf("got %v where there is none", got)
	}
}
