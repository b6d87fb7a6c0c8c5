package supervisor

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Line is one line of the log.
type Line struct {
	Time  time.Time
	Unit  string
	Ident string // the program's name, as it stands before the text
	PID   int
	Text  string
}

// journalLines bounds what a host remembers.
const journalLines = 20000

// Journal is the log of a host, in memory: it is gone with the host's power.
type Journal struct {
	host  string
	mu    sync.Mutex
	lines []Line
}

// NewJournal makes an empty log of the named host.
func NewJournal(host string) *Journal { return &Journal{host: host} }

// Add appends a line.
func (j *Journal) Add(l Line) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.lines) >= journalLines {
		j.lines = append(j.lines[:0], j.lines[journalLines/4:]...)
	}
	j.lines = append(j.lines, l)
}

// Query says which lines are wanted.
type Query struct {
	Units  []string  // none: all
	Since  time.Time // zero: from the beginning
	Last   int       // at most so many, the last ones; negative: all
	Format string    // cat, short, short-iso; empty: short
}

// Text renders the wanted lines.
func (j *Journal) Text(q Query) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var picked []Line
	for _, l := range j.lines {
		if !l.Time.Before(q.Since) && wanted(q.Units, l.Unit) {
			picked = append(picked, l)
		}
	}
	if q.Last >= 0 && len(picked) > q.Last {
		picked = picked[len(picked)-q.Last:]
	}
	var b strings.Builder
	for _, l := range picked {
		b.WriteString(l.render(j.host, q.Format))
	}
	return b.String()
}

func wanted(units []string, unit string) bool {
	for _, u := range units {
		if u == unit {
			return true
		}
	}
	return len(units) == 0
}

func (l Line) render(host, format string) string {
	switch format {
	case "cat":
		return l.Text + "\n"
	case "short-iso":
		return fmt.Sprintf("%s %s %s[%d]: %s\n", l.Time.Format("2006-01-02T15:04:05-0700"), host, l.Ident, l.PID, l.Text)
	}
	return fmt.Sprintf("%s %s %s[%d]: %s\n", l.Time.Format("Jan _2 15:04:05"), host, l.Ident, l.PID, l.Text)
}

// Lines makes lines of what a program writes.
type Lines struct {
	add  func(text string)
	rest []byte
}

// NewLines hands each line to add, without its end.
func NewLines(add func(text string)) *Lines { return &Lines{add: add} }

const longestLine = 48 << 10

// Write implements io.Writer.
func (w *Lines) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 && len(w.rest) < longestLine {
			return len(p), nil
		}
		if i < 0 {
			i = len(w.rest) - 1
		}
		w.add(strings.TrimRight(string(w.rest[:i+1]), "\r\n"))
		w.rest = w.rest[i+1:]
	}
}

// Flush hands on the last line, if it has no end.
func (w *Lines) Flush() {
	if len(w.rest) > 0 {
		w.add(string(w.rest))
		w.rest = nil
	}
}
