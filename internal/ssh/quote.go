package ssh

import (
	"errors"
	"fmt"
	"strings"
)

// Quote returns s as one word of the POSIX shell language, whatever it holds, except NUL, which no argument can hold
// (see [Join]).
func Quote(s string) string {
	if s == "" {
		return "''"
	}
	if strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// plain runes mean only themselves anywhere in a word; "=" and "~" are left out because they do not at its start.
func plain(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return true
	}
	return strings.ContainsRune("-_./:,@+", r)
}

// Join quotes argv as one command line. It refuses an empty argv and NUL bytes.
func Join(argv []string) (string, error) {
	if len(argv) == 0 || argv[0] == "" {
		return "", errors.New("command is empty")
	}
	words := make([]string, len(argv))
	for i, a := range argv {
		if strings.IndexByte(a, 0) >= 0 {
			return "", fmt.Errorf("argument %d holds a NUL byte, which no program can receive", i)
		}
		words[i] = Quote(a)
	}
	return strings.Join(words, " "), nil
}

// Split is the inverse of [Join]: it splits a line of plain words, single quotes and backslashes. It knows no
// expansion, and refuses unquoted characters that a shell would act on.
func Split(line string) ([]string, error) {
	var (
		out  []string
		word strings.Builder
		in   bool
	)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == ' ' || c == '\t':
			if in {
				out = append(out, word.String())
				word.Reset()
				in = false
			}
		case c == '\'':
			end := strings.IndexByte(line[i+1:], '\'')
			if end < 0 {
				return nil, errors.New("single quote is not closed")
			}
			word.WriteString(line[i+1 : i+1+end])
			i += end + 1
			in = true
		case c == '\\':
			if i+1 == len(line) {
				return nil, errors.New("backslash at the end of the line")
			}
			i++
			word.WriteByte(line[i])
			in = true
		case strings.IndexByte("\"$`;&|<>()*?[]{}#!\n~=%^", c) >= 0:
			return nil, fmt.Errorf("unquoted %q", c)
		default:
			word.WriteByte(c)
			in = true
		}
	}
	if in {
		out = append(out, word.String())
	}
	return out, nil
}
