package host

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/systemd"
)

// FileState is what is at a path. Kind is "" when nothing is there, which is then proved.
type FileState struct {
	Path   string
	Kind   string // file, directory, symlink, other, or ""
	SHA256 string // of a regular file, hex
	Size   int64  // bytes
	Mode   uint32 // permission bits
	Owner  string
	Group  string
}

// Exists reports whether anything is there.
func (f FileState) Exists() bool { return f.Kind != "" }

// UnitState is what systemd says about a unit; LoadState "not-found" is proof of absence.
type UnitState = systemd.Show

// Inspect looks at files and units in one session. The answers are in the order of the questions. It fails as a whole
// when any of them could not be answered ([ErrCannotAsk], or an error of package ssh).
func (h *Host) Inspect(ctx context.Context, paths, units []string) ([]FileState, []UnitState, error) {
	args := append([]string{strconv.Itoa(len(paths))}, paths...)
	subject := strings.Join(append(append([]string(nil), paths...), units...), " ")
	for _, u := range units {
		if err := systemd.ValidateUnitName(u); err != nil {
			return nil, nil, fmt.Errorf("inspect: %w", err)
		}
	}
	res, err := h.call(ctx, "inspect", subject, nil, append(args, units...)...)
	if err != nil {
		return nil, nil, err
	}
	head, tail, hasUnits := strings.Cut("\n"+string(res.Stdout), "\nunits\n")
	files, gzip, err := parseFiles(head, paths)
	if err != nil {
		res.Stdout = []byte(err.Error())
		return nil, nil, h.unexpected("inspect", subject, res)
	}
	h.mu.Lock()
	h.gzip = gzip
	h.mu.Unlock()
	if len(units) == 0 {
		return files, nil, nil
	}
	shows, err := systemd.ParseShow(tail)
	if err != nil || !hasUnits || len(shows) != len(units) {
		return nil, nil, h.unexpected("inspect", subject, res)
	}
	return files, shows, nil
}

// parseFiles reads the answer about paths.
func parseFiles(text string, paths []string) (files []FileState, gzip bool, err error) {
	files = make([]FileState, len(paths))
	seen := make([]bool, len(paths))
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		what, rest, _ := strings.Cut(line, " ")
		if what == "" {
			continue
		}
		if line == "can gzip" {
			gzip = true
			continue
		}
		index, rest, _ := strings.Cut(rest, " ")
		i, err := strconv.Atoi(index)
		if err != nil || i < 0 || i >= len(paths) || seen[i] {
			return nil, false, fmt.Errorf("line %.80q answers nothing that was asked", line)
		}
		seen[i] = true
		files[i].Path = paths[i]
		switch what {
		case "gone":
		case "error":
			return nil, false, fmt.Errorf("%s: %s", paths[i], rest)
		case "file":
			if err := files[i].parse(rest); err != nil {
				return nil, false, fmt.Errorf("%s: %w", paths[i], err)
			}
		default:
			return nil, false, fmt.Errorf("line %.80q is not understood", line)
		}
	}
	for i, ok := range seen {
		if !ok {
			return nil, false, fmt.Errorf("no answer about %s", paths[i])
		}
	}
	return files, gzip, nil
}

// parse reads "sum mode owner group size kind".
func (f *FileState) parse(s string) error {
	p := strings.SplitN(s, " ", 6)
	if len(p) != 6 {
		return fmt.Errorf("%.80q has not six fields", s)
	}
	mode, err := strconv.ParseUint(p[1], 8, 32)
	if err != nil {
		return fmt.Errorf("mode: %w", err)
	}
	size, err := strconv.ParseInt(p[4], 10, 64)
	if err != nil {
		return fmt.Errorf("size: %w", err)
	}
	f.Mode, f.Owner, f.Group, f.Size = uint32(mode), p[2], p[3], size
	switch {
	case strings.HasPrefix(p[5], "regular"):
		f.Kind = "file"
		if f.SHA256 = p[0]; len(f.SHA256) != 64 {
			return fmt.Errorf("sha256 %.80q is not 64 digits", p[0])
		}
	case p[5] == "directory":
		f.Kind = "directory"
	case p[5] == "symbolic link":
		f.Kind = "symlink"
	default:
		f.Kind = "other"
	}
	return nil
}
