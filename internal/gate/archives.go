package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// releaseTargets are the platforms, OS_ARCH, that a release has an archive for.
var releaseTargets = []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"}

const (
	project    = "terraform-provider-moai"
	sumsSuffix = "_SHA256SUMS"
)

// archives are those of one version, named as the registries want it.
type archives struct{ Version string }

func (a archives) zipName(target string) string {
	return project + "_" + a.Version + "_" + target + ".zip"
}
func (a archives) sumsName() string     { return project + "_" + a.Version + sumsSuffix }
func (a archives) manifestName() string { return project + "_" + a.Version + "_manifest.json" }
func (a archives) binaryName() string   { return project + "_v" + a.Version }

// readArchives finds out which version a folder has the archives of.
func readArchives(dir fs.FS) (archives, error) {
	found, err := fs.Glob(dir, project+"_*"+sumsSuffix)
	if err != nil {
		return archives{}, err
	}
	if len(found) != 1 {
		return archives{}, fmt.Errorf("%d files named %s_VERSION%s, expected 1", len(found), project, sumsSuffix)
	}
	return archives{Version: strings.TrimSuffix(strings.TrimPrefix(found[0], project+"_"), sumsSuffix)}, nil
}

// check compares the archives with what a registry wants. manifest is the
// registry manifest's content, packed what each provider must carry, root the
// checkout, whose path must be in no program.
func (a archives) check(dir fs.FS, manifest []byte, packed [][]byte, root string) error {
	if err := checkManifest(manifest); err != nil {
		return err
	}
	text, err := fs.ReadFile(dir, a.sumsName())
	if err != nil {
		return err
	}
	sums, err := parseSums(text)
	if err != nil {
		return fmt.Errorf("%s: %w", a.sumsName(), err)
	}
	want := map[string][]byte{a.manifestName(): manifest}
	for _, target := range releaseTargets {
		if want[a.zipName(target)], err = fs.ReadFile(dir, a.zipName(target)); err != nil {
			return err
		}
	}
	if got, all := slices.Sorted(maps.Keys(sums)), slices.Sorted(maps.Keys(want)); !slices.Equal(got, all) {
		return fmt.Errorf("%s names %v, expected %v", a.sumsName(), got, all)
	}
	var errs []error
	for name, content := range want {
		if sum := sha256.Sum256(content); sums[name] != hex.EncodeToString(sum[:]) {
			errs = append(errs, fmt.Errorf("%s has another SHA-256 than %s says", name, a.sumsName()))
		}
	}
	for _, target := range releaseTargets {
		if err := a.checkZip(want[a.zipName(target)], target, packed, root); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", a.zipName(target), err))
		}
	}
	return errors.Join(errs...)
}

func checkManifest(text []byte) error {
	var m struct {
		Version  int `json:"version"`
		Metadata struct {
			ProtocolVersions []string `json:"protocol_versions"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("registry manifest: %w", err)
	}
	if m.Version != 1 || !slices.Equal(m.Metadata.ProtocolVersions, []string{"6.0"}) {
		return fmt.Errorf("registry manifest: version %d, protocols %v; the provider serves protocol 6.0", m.Version, m.Metadata.ProtocolVersions)
	}
	return nil
}

// parseSums reads lines of a hexadecimal SHA-256, two spaces and a file's name.
func parseSums(text []byte) (map[string]string, error) {
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if b, err := hex.DecodeString(sum); !ok || err != nil || len(b) != sha256.Size || name == "" {
			return nil, fmt.Errorf("line %q is no sum of a file", line)
		}
		if _, twice := sums[name]; twice {
			return nil, fmt.Errorf("%s stands there twice", name)
		}
		sums[name] = sum
	}
	return sums, nil
}

// checkZip looks into one archive.
func (a archives) checkZip(content []byte, target string, packed [][]byte, root string) error {
	z, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return err
	}
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	if want := []string{"LICENSE", a.binaryName()}; !slices.Equal(names, want) {
		return fmt.Errorf("it holds %v, expected %v", names, want)
	}
	info, err := fs.Stat(z, a.binaryName())
	if err != nil {
		return err
	}
	if info.Mode().Perm() != 0o755 {
		return fmt.Errorf("%s has mode %v, expected 0755", a.binaryName(), info.Mode().Perm())
	}
	binary, err := fs.ReadFile(z, a.binaryName())
	if err != nil {
		return err
	}
	return checkProvider(binary, target, packed, root)
}

// checkProvider looks at how a program was built and what it carries.
func checkProvider(binary []byte, target string, packed [][]byte, root string) error {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return err
	}
	got := map[string]string{}
	for _, s := range info.Settings {
		got[s.Key] = s.Value
	}
	for key, want := range map[string]string{"CGO_ENABLED": "0", "-trimpath": "true"} {
		if got[key] != want {
			return fmt.Errorf("the program was built with %s=%q, expected %q", key, got[key], want)
		}
	}
	if built := got["GOOS"] + "_" + got["GOARCH"]; built != target {
		return fmt.Errorf("the program is for %s", built)
	}
	for _, p := range packed {
		if !bytes.Contains(binary, p) {
			return errors.New("the program does not carry every moaid of internal/payload/dist")
		}
	}
	if bytes.Contains(binary, []byte(root+"/")) {
		return errors.New("the path of the checkout is in the program")
	}
	return nil
}

// unzip unpacks an archive of plain files into a new folder.
func unzip(archive, dir string) error {
	z, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer func() { _ = z.Close() }() // read only
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	for _, f := range z.File {
		if !f.Mode().IsRegular() || f.Name != filepath.Base(f.Name) {
			return fmt.Errorf("%s: %q is not a plain file beside the others", archive, f.Name)
		}
		if err := unzipOne(f, filepath.Join(dir, filepath.Base(f.Name))); err != nil {
			return err
		}
	}
	return nil
}

func unzipOne(f *zip.File, to string) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	b, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return os.WriteFile(to, b, f.Mode().Perm())
}
