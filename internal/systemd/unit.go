package systemd

import (
	"fmt"
	"strings"
)

// Entry is one setting. Value is in the unit file's own syntax, already escaped.
type Entry struct {
	Key   string
	Value string
}

// Section is one part of a unit, in order.
type Section struct {
	Name    string
	Entries []Entry
}

// Unit is a unit file without its header.
type Unit struct {
	Sections []Section
}

// Get returns all values of a setting, in order.
func (u Unit) Get(section, key string) []string {
	var out []string
	for _, s := range u.Sections {
		if s.Name != section {
			continue
		}
		for _, e := range s.Entries {
			if e.Key == key {
				out = append(out, e.Value)
			}
		}
	}
	return out
}

// Render writes the unit. It fails on names and values that would be read as something else.
func (u Unit) Render() (string, error) {
	var b strings.Builder
	for i, s := range u.Sections {
		if !wordOnly(s.Name) {
			return "", fmt.Errorf("section name %.80q is not a word", s.Name)
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString("[" + s.Name + "]\n")
		for _, e := range s.Entries {
			if !wordOnly(e.Key) {
				return "", fmt.Errorf("setting name %.80q is not a word", e.Key)
			}
			if err := check(e.Value); err != nil {
				return "", fmt.Errorf("%s=: %w", e.Key, err)
			}
			if strings.ContainsAny(e.Value, "\n\r") || strings.HasSuffix(e.Value, `\`) || strings.TrimSpace(e.Value) != e.Value {
				return "", fmt.Errorf("%s=: value %.80q is not one line without outer space", e.Key, e.Value)
			}
			b.WriteString(e.Key + "=" + e.Value + "\n")
		}
	}
	return b.String(), nil
}

func wordOnly(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' {
			return false
		}
	}
	return s != ""
}

// Parse reads a unit as [Unit.Render] writes it; comments and empty lines are skipped, continuation lines refused.
func Parse(text string) (Unit, error) {
	var u Unit
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[':
			name, ok := strings.CutSuffix(line[1:], "]")
			if !ok || !wordOnly(name) {
				return Unit{}, fmt.Errorf("line %d: %.80q is not a section", n, line)
			}
			u.Sections = append(u.Sections, Section{Name: name})
		default:
			key, value, ok := strings.Cut(line, "=")
			key, value = strings.TrimSpace(key), strings.TrimSpace(value)
			switch {
			case !ok || !wordOnly(key):
				return Unit{}, fmt.Errorf("line %d: %.80q is not a setting", n, line)
			case len(u.Sections) == 0:
				return Unit{}, fmt.Errorf("line %d: setting before the first section", n)
			case strings.HasSuffix(value, `\`):
				return Unit{}, fmt.Errorf("line %d: continuation lines are not read here", n)
			}
			s := &u.Sections[len(u.Sections)-1]
			s.Entries = append(s.Entries, Entry{Key: key, Value: value})
		}
	}
	return u, nil
}
