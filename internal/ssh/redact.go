package ssh

import (
	"io"
	"sort"
	"strings"
)

// Redacted stands in a text where a secret was.
const Redacted = "[redacted]"

// minSecret is the shortest secret that is searched for: replacing shorter ones would blank ordinary text and by that
// reveal them.
const minSecret = 4

// Redactor removes a fixed set of secrets from texts. It is safe for concurrent use.
type Redactor struct {
	secrets []string // longest first
	max     int
}

// NewRedactor makes a redactor. A secret of several lines is also removed line by line, since tools indent and wrap.
// Secrets of fewer than 4 bytes are ignored.
func NewRedactor(secrets ...Secret) *Redactor {
	seen := map[string]bool{}
	r := &Redactor{}
	add := func(s string) {
		if len(s) < minSecret || seen[s] || strings.HasPrefix(s, "-----BEGIN ") && !strings.Contains(s, "\n") ||
			strings.HasPrefix(s, "-----END ") {
			return
		}
		seen[s] = true
		r.secrets = append(r.secrets, s)
		r.max = max(r.max, len(s))
	}
	for _, s := range secrets {
		add(s.Reveal())
		for line := range strings.Lines(s.Reveal()) {
			add(strings.TrimSpace(line))
		}
	}
	sort.Slice(r.secrets, func(i, j int) bool {
		a, b := r.secrets[i], r.secrets[j]
		if len(a) != len(b) {
			return len(a) > len(b)
		}
		return a < b
	})
	return r
}

// String returns s without the secrets.
func (r *Redactor) String(s string) string {
	if r == nil || len(r.secrets) == 0 {
		return s
	}
	out, _ := r.scan(nil, []byte(s), true)
	return string(out)
}

// scan appends to out what of in is decided and returns the undecided rest: bytes that may be the start of a secret.
// With final, nothing stays undecided. At each position the longest secret wins.
func (r *Redactor) scan(out, in []byte, final bool) (written, rest []byte) {
	for i := 0; i < len(in); {
		tail := in[i:]
		hit := 0
		for _, s := range r.secrets {
			if len(tail) >= len(s) {
				if string(tail[:len(s)]) == s {
					hit = len(s)
					break
				}
			} else if !final && strings.HasPrefix(s, string(tail)) {
				return out, tail
			}
		}
		if hit > 0 {
			out = append(out, Redacted...)
			i += hit
			continue
		}
		out = append(out, in[i])
		i++
	}
	return out, nil
}

// Writer returns a writer that passes on to w what it is given, without the secrets, also when one is split over
// several writes. Close flushes the rest; it does not close w.
func (r *Redactor) Writer(w io.Writer) io.WriteCloser { return &redactWriter{r: r, w: w} }

type redactWriter struct {
	r    *Redactor
	w    io.Writer
	held []byte
}

// Write implements io.Writer.
func (w *redactWriter) Write(p []byte) (int, error) {
	if err := w.flow(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes what is still held back.
func (w *redactWriter) Close() error { return w.flow(nil, true) }

func (w *redactWriter) flow(p []byte, final bool) error {
	out, rest := w.r.scan(nil, append(w.held, p...), final)
	w.held = append([]byte(nil), rest...)
	if len(out) == 0 {
		return nil
	}
	_, err := w.w.Write(out)
	return err
}
