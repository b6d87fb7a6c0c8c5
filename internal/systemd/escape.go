package systemd

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// check refuses what no unit file can carry: systemd ignores lines that are not UTF-8 and stops at NUL.
func check(s string) error {
	if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
		return fmt.Errorf("%.80q is not UTF-8 text without NUL", s)
	}
	return nil
}

// Quote returns s as one word of an Exec line: specifiers and variables are inert, quotes and control characters
// escaped.
func Quote(s string) (string, error) { return quote(s, true) }

// QuoteValue returns s as one word of a list such as Environment= or ReadWritePaths=, where "$" means itself.
func QuoteValue(s string) (string, error) { return quote(s, false) }

func quote(s string, exec bool) (string, error) {
	if err := check(s); err != nil {
		return "", err
	}
	var b strings.Builder
	bare := s != ""
	for _, r := range s {
		switch {
		case r == '%':
			b.WriteString("%%")
		case r == '$' && exec:
			b.WriteString("$$")
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
			bare = false
		case r == '\n':
			b.WriteString(`\n`)
			bare = false
		case r == '\t':
			b.WriteString(`\t`)
			bare = false
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
			bare = false
		default:
			b.WriteRune(r)
			if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@+", r) {
				bare = false
			}
		}
	}
	if bare {
		return b.String(), nil
	}
	return `"` + b.String() + `"`, nil
}

// Text returns s as the value of a setting that takes one free text, such as Description=.
func Text(s string) (string, error) {
	if err := check(s); err != nil {
		return "", err
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			return "", fmt.Errorf("%.80q holds a control character, which this setting cannot carry", s)
		}
	}
	if strings.TrimSpace(s) != s || strings.HasSuffix(s, `\`) {
		return "", fmt.Errorf("%.80q begins or ends with a space, or ends with a backslash, which this setting cannot carry", s)
	}
	return strings.ReplaceAll(s, "%", "%%"), nil
}

// Exec renders a command line. argv[0] must be an absolute path without "$", which systemd does not expand there.
func Exec(argv []string) (string, error) {
	if len(argv) == 0 || !strings.HasPrefix(argv[0], "/") {
		return "", errors.New("command of a unit must begin with an absolute path")
	}
	if strings.ContainsAny(argv[0], "$\"\\\n\t") {
		return "", fmt.Errorf("program path %.80q holds characters that a unit cannot carry there", argv[0])
	}
	words := make([]string, len(argv))
	for i, a := range argv {
		w, err := Quote(a)
		if err != nil {
			return "", fmt.Errorf("argument %d: %w", i, err)
		}
		words[i] = w
	}
	return strings.Join(words, " "), nil
}

// unescape reads one escape after a backslash and returns its length.
func unescape(w *strings.Builder, s string) (int, error) {
	if s == "" {
		return 0, errors.New("backslash at the end")
	}
	switch s[0] {
	case '"', '\\':
		w.WriteByte(s[0])
	case 'n':
		w.WriteByte('\n')
	case 't':
		w.WriteByte('\t')
	case 'x':
		var c byte
		if len(s) < 3 {
			return 0, errors.New("short \\x escape")
		}
		if _, err := fmt.Sscanf(s[1:3], "%02x", &c); err != nil {
			return 0, fmt.Errorf("\\x escape: %w", err)
		}
		w.WriteByte(c)
		return 3, nil
	default:
		return 0, fmt.Errorf("escape \\%c is not read here", s[0])
	}
	return 1, nil
}
