package payload

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/fstest"
)

func packed(t *testing.T, b []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func source(t *testing.T, content, claimed []byte) *Source {
	t.Helper()
	sum := sha256.Sum256(claimed)
	m, err := json.Marshal(Manifest{Moaid: map[string]Entry{"amd64": {File: "a.gz", SHA256: hex.EncodeToString(sum[:]), Size: int64(len(claimed))}}})
	if err != nil {
		t.Fatal(err)
	}
	return NewSource(fstest.MapFS{"a.gz": {Data: packed(t, content)}, ManifestName: {Data: m}})
}

func TestForReturnsVerifiedContent(t *testing.T) {
	want := []byte("a binary")
	b, err := source(t, want, want).For("amd64")
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.Content()
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("Content() = %q, %v", got, err)
	}
	if len(b.Version()) != 12 || !strings.HasPrefix(b.SHA256, b.Version()) {
		t.Errorf("Version() = %q for %s", b.Version(), b.SHA256)
	}
}

func TestForRefusesDamage(t *testing.T) {
	for name, content := range map[string]string{"changed": "a binarz", "longer": "a binary and more", "shorter": "a bin"} {
		t.Run(name, func(t *testing.T) {
			b, err := source(t, []byte(content), []byte("a binary")).For("amd64")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Content(); err == nil || !strings.Contains(err.Error(), "damaged") {
				t.Fatalf("Content() error = %v, want damaged", err)
			}
		})
	}
}

func TestForWithoutPayload(t *testing.T) {
	for name, s := range map[string]*Source{"clean clone": NewSource(fstest.MapFS{".gitkeep": {}}), "zero": {}, "nil": nil} {
		if _, err := s.For("amd64"); !errors.Is(err, ErrMissing) {
			t.Errorf("%s: For() error = %v, want ErrMissing", name, err)
		}
	}
}

func TestForUnknownArch(t *testing.T) {
	_, err := source(t, nil, nil).For("riscv64")
	if err == nil || !strings.Contains(err.Error(), "linux/riscv64") || !strings.Contains(err.Error(), "amd64") {
		t.Errorf("For() error = %v", err)
	}
}
