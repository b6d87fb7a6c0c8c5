// Package payload holds the moaid binaries that the provider installs. They are built into dist by
// `go run ./internal/payload/build` and are never committed; a provider that was built without them says so when one is
// asked for.
package payload

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
)

//go:embed all:dist
var dist embed.FS

// Manifest is dist/manifest.json.
type Manifest struct {
	Moaid map[string]Entry `json:"moaid"` // by architecture, as in GOARCH
}

// Entry is one binary.
type Entry struct {
	File   string `json:"file"`   // in dist, compressed with gzip
	SHA256 string `json:"sha256"` // of the binary itself: its version
	Size   int64  `json:"size"`   // of the binary itself, bytes
}

// ManifestName is the manifest's file in dist.
const ManifestName = "manifest.json"

// ErrMissing says that the provider was built without payload.
var ErrMissing = errors.New("this provider was built without the moaid payload; run make")

// Binary is a moaid binary for one architecture.
type Binary struct {
	Arch   string
	SHA256 string // hex
	Size   int64  // bytes

	// Content unpacks and verifies the binary.
	Content func() ([]byte, error)
}

// Version is what people see as the version: the beginning of the content's hash.
func (b Binary) Version() string { return Version(b.SHA256) }

// Version shortens a content hash.
func Version(sha string) string {
	const digits = 12
	if len(sha) > digits {
		return sha[:digits]
	}
	return sha
}

// Source finds binaries. The zero value has none.
type Source struct {
	fsys fs.FS
	once func() (Manifest, error)
}

// Embedded is the payload of this provider.
var Embedded = NewSource(mustSub(dist, "dist"))

func mustSub(f fs.FS, dir string) fs.FS {
	sub, err := fs.Sub(f, dir)
	if err != nil {
		panic(err) // dir is a constant that the embed pattern names
	}
	return sub
}

// NewSource reads payloads from a directory as the build writes it.
func NewSource(dir fs.FS) *Source {
	return &Source{fsys: dir, once: sync.OnceValues(func() (Manifest, error) { return readManifest(dir) })}
}

func readManifest(dir fs.FS) (Manifest, error) {
	var m Manifest
	b, err := fs.ReadFile(dir, ManifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return m, ErrMissing
	}
	if err != nil {
		return m, fmt.Errorf("payload: %w", err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("payload: %s: %w", ManifestName, err)
	}
	return m, nil
}

// For returns the binary for an architecture (GOARCH: amd64, arm64). The error is [ErrMissing] when the provider has no
// payload at all.
func For(arch string) (Binary, error) { return Embedded.For(arch) }

// For returns the binary for an architecture.
func (s *Source) For(arch string) (Binary, error) {
	if s == nil || s.once == nil {
		return Binary{}, ErrMissing
	}
	m, err := s.once()
	if err != nil {
		return Binary{}, err
	}
	e, ok := m.Moaid[arch]
	if !ok {
		return Binary{}, fmt.Errorf("there is no moaid for linux/%s; there is one for %s", arch, strings.Join(slices.Sorted(maps.Keys(m.Moaid)), ", "))
	}
	return Binary{Arch: arch, SHA256: e.SHA256, Size: e.Size, Content: func() ([]byte, error) { return s.unpack(e) }}, nil
}

func (s *Source) unpack(e Entry) ([]byte, error) {
	f, err := s.fsys.Open(e.File)
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("payload %s: %w", e.File, err)
	}
	var buf bytes.Buffer
	if _, err := io.Copy(&buf, io.LimitReader(z, e.Size+1)); err != nil {
		return nil, fmt.Errorf("payload %s: %w", e.File, err)
	}
	sum := sha256.Sum256(buf.Bytes())
	if got := hex.EncodeToString(sum[:]); got != e.SHA256 {
		return nil, fmt.Errorf("payload %s is damaged: its content's SHA-256 is %s, not %s", e.File, got, e.SHA256)
	}
	return buf.Bytes(), nil
}
