package systemd

import (
	"fmt"
	"strings"
)

// unitTypes are the unit name endings accepted here.
var unitTypes = []string{".service", ".socket", ".target", ".timer", ".path", ".mount", ".slice"}

const nameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.\\@"

// ValidateUnitName checks that s is a complete unit name that systemd accepts, and that no program can take it for an
// option.
func ValidateUnitName(s string) error {
	if len(s) > 255 {
		return fmt.Errorf("unit name of %d bytes is longer than 255", len(s))
	}
	for _, t := range unitTypes {
		if stem, ok := strings.CutSuffix(s, t); ok {
			switch {
			case stem == "" || stem[0] == '-' || stem[0] == '.' || stem[0] == '@':
				return fmt.Errorf("unit name %q does not begin with a letter or a digit", s)
			case strings.Trim(stem, nameChars) != "":
				return fmt.Errorf("unit name %q holds characters that systemd refuses; see EscapeName", s)
			case strings.Count(stem, "@") > 1:
				return fmt.Errorf("unit name %q holds more than one @", s)
			}
			for i := 0; i < len(stem); i++ {
				if strings.IndexByte(nameChars, stem[i]) < 0 {
					return fmt.Errorf("unit name %q holds characters that systemd refuses; see EscapeName", s)
				}
			}
			return nil
		}
	}
	return fmt.Errorf("unit name %q does not end in a unit type such as .service", s)
}

// EscapeName makes any string a valid part of a unit name, as systemd-escape does: "/" becomes "-", other special bytes
// \xNN.
func EscapeName(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '/':
			b.WriteByte('-')
		case c == '.' && i == 0, c == '-', c == '\\', c == '@', strings.IndexByte(nameChars, c) < 0:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
