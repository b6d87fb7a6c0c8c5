package systemd

import (
	"errors"
	"fmt"
	"strings"
)

// SplitExec is the inverse of [Exec]: it splits a command line and takes the escapes away. It refuses specifiers and
// variables that are not escaped, since their value is not known here.
func SplitExec(line string) ([]string, error) { return split(line, true) }

// SplitValues is the inverse of words of [QuoteValue], joined by spaces.
func SplitValues(line string) ([]string, error) { return split(line, false) }

func split(line string, exec bool) ([]string, error) {
	var out []string
	var word strings.Builder
	in, quoted := false, false
	for i := 0; i < len(line); i++ {
		c := line[i]
		next := func() (byte, bool) {
			if i+1 < len(line) {
				return line[i+1], true
			}
			return 0, false
		}
		switch {
		case c == '"':
			quoted = !quoted
			in = true
		case (c == ' ' || c == '\t') && !quoted:
			if in {
				out = append(out, word.String())
				word.Reset()
				in = false
			}
		case c == '%' || c == '$' && exec:
			if n, ok := next(); !ok || n != c {
				return nil, fmt.Errorf("%q at byte %d is not escaped", c, i)
			}
			i++
			word.WriteByte(c)
			in = true
		case c == '\\':
			n, err := unescape(&word, line[i+1:])
			if err != nil {
				return nil, fmt.Errorf("byte %d: %w", i, err)
			}
			i += n
			in = true
		case c == '\'':
			if !quoted {
				return nil, errors.New("single quotes are not read here")
			}
			word.WriteByte(c)
		default:
			word.WriteByte(c)
			in = true
		}
	}
	if quoted {
		return nil, errors.New("quote is not closed")
	}
	if in {
		out = append(out, word.String())
	}
	return out, nil
}

// UnescapeName is the inverse of [EscapeName].
func UnescapeName(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '-':
			b.WriteByte('/')
		case '\\':
			var c byte
			if i+4 > len(s) || s[i+1] != 'x' {
				return "", fmt.Errorf("escape at byte %d of %q is not \\xNN", i, s)
			}
			if _, err := fmt.Sscanf(s[i+2:i+4], "%02x", &c); err != nil {
				return "", fmt.Errorf("escape at byte %d of %q: %w", i, s, err)
			}
			b.WriteByte(c)
			i += 3
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), nil
}
