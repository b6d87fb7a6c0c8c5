package host

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// gzipFrom is the size from which content is compressed for the way: below it, a packet or two are saved at best.
const gzipFrom = 16 << 10

// readLimit bounds ReadFile: markers and configuration, never payloads.
const readLimit = 1 << 20

// File is a file as it shall be.
type File struct {
	Path    string // absolute and clean
	Content []byte
	Mode    uint32 // permission bits; 0 means 0644
	Owner   string // "" means root
	Group   string // "" means root
}

func (f File) withDefaults() File {
	if f.Mode == 0 {
		f.Mode = 0o644
	}
	if f.Owner == "" {
		f.Owner = "root"
	}
	if f.Group == "" {
		f.Group = "root"
	}
	return f
}

// Matches reports whether the state is what the file shall be.
func (f File) Matches(s FileState) bool {
	f = f.withDefaults()
	return s.Kind == "file" && s.SHA256 == SHA256(f.Content) && s.Mode == f.Mode && s.Owner == f.Owner && s.Group == f.Group
}

// SHA256 is the hex digest that FileState and ownership records hold.
func SHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// PutFile makes a file be what it shall be and reports whether anything changed. Content of equal hash is not sent
// again. The new file appears at once or not at all: temporary file in the same directory, hash verified on the host,
// mode, owner, rename. Missing directories are made with mode 0755.
func (h *Host) PutFile(ctx context.Context, f File) (changed bool, err error) {
	f = f.withDefaults()
	if err := checkPath(f.Path); err != nil {
		return false, err
	}
	states, _, err := h.Inspect(ctx, []string{f.Path}, nil)
	if err != nil {
		return false, err
	}
	sum := SHA256(f.Content)
	mode := strconv.FormatUint(uint64(f.Mode), 8)
	if f.Matches(states[0]) {
		return false, nil
	}
	if states[0].Kind == "file" && states[0].SHA256 == sum {
		res, err := h.call(ctx, "set-attr", f.Path, nil, f.Path, mode, f.Owner, f.Group)
		return true, h.done("set-attr", f.Path, res, err)
	}
	body, enc := f.Content, "plain"
	if h.hasGzip() && len(body) >= gzipFrom {
		if packed, err := pack(body); err == nil && len(packed) < len(body) {
			body, enc = packed, "gzip"
		}
	}
	res, err := h.call(ctx, "put-file", f.Path, bytes.NewReader(body), f.Path, sum, mode, f.Owner, f.Group, enc)
	return true, h.done("put-file", f.Path, res, err)
}

func (h *Host) hasGzip() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gzip
}

func pack(b []byte) ([]byte, error) {
	var buf bytes.Buffer
	w, err := gzip.NewWriterLevel(&buf, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// ReadFile returns a file's content, at most 1 MiB. The error is fs.ErrNotExist only when the host proved that nothing
// is there.
func (h *Host) ReadFile(ctx context.Context, name string) ([]byte, error) {
	if err := checkPath(name); err != nil {
		return nil, err
	}
	res, err := h.call(ctx, "read-file", name, nil, name, strconv.Itoa(readLimit))
	if err != nil {
		return nil, err
	}
	if content, ok := bytes.CutPrefix(res.Stdout, []byte("file\n")); ok {
		return content, nil
	}
	if word(res) == "gone" {
		return nil, fmt.Errorf("%s: %s: %w", h, name, fs.ErrNotExist)
	}
	return nil, h.unexpected("read-file", name, res)
}

// List returns the names of a directory's entries, none when the host proved that nothing is there. What is no directory is
// [ErrConflict].
func (h *Host) List(ctx context.Context, name string) ([]string, error) {
	if err := checkPath(name); err != nil {
		return nil, err
	}
	res, err := h.call(ctx, "list-dir", name, nil, name)
	if err != nil {
		return nil, err
	}
	if word(res) == "gone" {
		return nil, nil
	}
	entries, ok := strings.CutPrefix(string(res.Stdout), "dir\n")
	if !ok {
		return nil, h.unexpected("list-dir", name, res)
	}
	return strings.FieldsFunc(entries, func(r rune) bool { return r == '\n' }), nil
}

// MakeDir makes a directory, and its parents with mode 0755, and sets its mode and owner.
func (h *Host) MakeDir(ctx context.Context, name string, mode uint32, owner, group string) error {
	if err := checkPath(name); err != nil {
		return err
	}
	res, err := h.call(ctx, "make-dir", name, nil, name, strconv.FormatUint(uint64(mode), 8), owner, group)
	return h.done("make-dir", name, res, err)
}

// Removal is what became of something that was to go.
type Removal string

// The outcomes of a removal. After Gone and Removed, absence was verified on the host.
const (
	Gone    Removal = "gone" // nothing was there
	Removed Removal = "done"
	Kept    Removal = "kept" // a directory that is not empty
)

// RemoveFile removes a file or a symlink.
func (h *Host) RemoveFile(ctx context.Context, name string) (Removal, error) {
	return h.remove(ctx, "file", name)
}

// RemoveDir removes a directory if it is empty, and says Kept if not.
func (h *Host) RemoveDir(ctx context.Context, name string) (Removal, error) {
	return h.remove(ctx, "empty", name)
}

// RemoveTree removes a directory and all below it. Only [Options].Trees and what is below them can be removed.
func (h *Host) RemoveTree(ctx context.Context, name string) (Removal, error) {
	if err := checkPath(name); err != nil {
		return "", err
	}
	if !below(name, h.opts.Trees) {
		return "", fmt.Errorf("%s: will not remove the tree %s: it is not below %s", h, name, strings.Join(h.opts.Trees, ", "))
	}
	return h.remove(ctx, "tree", name)
}

func (h *Host) remove(ctx context.Context, kind, name string) (Removal, error) {
	if err := checkPath(name); err != nil {
		return "", err
	}
	res, err := h.call(ctx, "remove", name, nil, kind, name)
	return h.removal("remove", name, res, err)
}

// checkPath refuses what is not one absolute, clean path below the root.
func checkPath(name string) error {
	if !path.IsAbs(name) || path.Clean(name) != name || name == "/" || strings.ContainsAny(name, "\x00\n") {
		return fmt.Errorf("path %q is not absolute and clean", name)
	}
	return nil
}

func below(name string, trees []string) bool {
	for _, t := range trees {
		if name == t || strings.HasPrefix(name, t+"/") {
			return true
		}
	}
	return false
}
