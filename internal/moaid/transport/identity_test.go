package transport

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestLoadOrCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.key")
	// Several at once agree on one key.
	keys := make([]string, 8)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			id, err := LoadOrCreate(path)
			if err != nil {
				t.Error(err)
				return
			}
			keys[i] = id.PublicString()
		})
	}
	wg.Wait()
	for _, k := range keys {
		if k != keys[0] || !strings.HasPrefix(k, "ed25519:") {
			t.Errorf("keys %q and %q", k, keys[0])
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestBadKeyFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	good := filepath.Join(dir, "good")
	if _, err := LoadOrCreate(good); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	for path, part := range map[string]string{
		write("open", string(content), 0o644): "others may have read it",
		write("empty", "", 0o600):             "read the node key",
		write("text", "hello", 0o600):         "not a PEM private key",
		write("cut", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", 0o600): "damaged",
		filepath.Join(dir, "none", "key"): "store the node key",
	} {
		if _, err := LoadOrCreate(path); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, want %q", filepath.Base(path), err, part)
		}
	}
}

func TestKeyStrings(t *testing.T) {
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	pub, err := ParseKey(id.PublicString())
	if err != nil || !pub.Equal(id.Public()) {
		t.Errorf("%v, %v", pub, err)
	}
	for _, s := range []string{"", "ed25519:", "ed25519:AAAA", strings.TrimPrefix(id.PublicString(), "ed25519:"), id.PublicString() + "A", "ed25519:%%%"} {
		if _, err := ParseKey(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}
