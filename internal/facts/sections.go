package facts

import (
	"strconv"
	"strings"
)

// Section is one tool's answer.
type Section struct {
	Text string // standard output and error together
	Exit int    // 127: not installed; 124 or 137: ran out of time; -1: it did not end
}

// Raw is what a probe brought, by section name. A section that is not in it was not reached.
type Raw map[string]Section

// Has reports whether a section came whole.
func (r Raw) Has(name string) bool {
	s, ok := r[name]
	return ok && s.Exit >= 0
}

// text returns a section's text if its tool succeeded.
func (r Raw) text(name string) (string, bool) {
	s, ok := r[name]
	return s.Text, ok && s.Exit == 0
}

// Sections splits a probe's output. nonce is what its marks carry. A section without an end has Exit -1.
func Sections(nonce, out string) Raw {
	raw := Raw{}
	mark := "@@" + nonce + " "
	name, from := "", 0
	pos := 0
	for line := range strings.Lines(out) {
		start := pos
		pos += len(line)
		rest, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), mark)
		if !ok {
			continue
		}
		f := strings.Fields(rest)
		switch {
		case len(f) == 2 && f[0] == "begin":
			name, from = f[1], pos
			raw[name] = Section{Exit: -1}
		case len(f) == 3 && f[0] == "end" && f[1] == name && name != "":
			code, err := strconv.Atoi(f[2])
			if err != nil || code < 0 {
				code = 255
			}
			raw[name] = Section{Text: strings.TrimSuffix(out[from:start], "\n"), Exit: code}
			name = ""
		}
	}
	if name != "" {
		raw[name] = Section{Text: out[from:], Exit: -1}
	}
	return raw
}
