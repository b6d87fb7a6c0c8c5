package engine

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/host"
)

// diedError says that an engine does not stay up.
type diedError struct {
	name, host, unit string
	exit             int    // status of its main process
	result           string // systemd's word
	log              string // its last lines, without secrets
	attribute        string // to blame
	cause            error  // may be nil
}

// Error implements error.
func (e *diedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s ended while starting (%s, exit status %d)", e.unit, e.host, e.result, e.exit)
	log := lastWords(e.log)
	if e.cause != nil && (log == "" || !tellsLog(e.cause)) {
		b.WriteString(": " + lastWords(e.cause.Error()))
	}
	if log != "" {
		b.WriteString("\nIts last log lines:\n" + log)
	}
	return b.String()
}

// tellsLog reports whether an error is a start that failed, which tells the unit's log itself.
func tellsLog(err error) bool {
	var h *host.Error
	return errors.As(err, &h) && h.Verb == "unit" && h.Exit == 70
}

// Most of a log that an error shows.
const (
	lastLines = 12
	lastBytes = 1 << 10
)

// usageLine is a line of the list of flags that a Go program prints when it does not understand one, in a log or not.
var usageLine = regexp.MustCompile(`^(?:.*\]: )?(?:Usage of .*:|  -[a-z].*|    \t.*)$`)

// lastWords is the end of a log, without lists of flags.
func lastWords(log string) string {
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSpace(log), "\n") {
		if line = strings.TrimRight(line, " \r"); line != "" && !usageLine.MatchString(line) {
			lines = append(lines, line)
		}
	}
	lines = lines[max(0, len(lines)-lastLines):]
	for len(lines) > 1 && len(strings.Join(lines, "\n")) > lastBytes {
		lines = lines[1:]
	}
	text := strings.Join(lines, "\n")
	if len(text) > lastBytes {
		text = strings.ToValidUTF8(text[:lastBytes], "") + "…"
	}
	return text
}

// Unwrap implements the protocol of errors.Is.
func (e *diedError) Unwrap() error { return e.cause }

// Explain implements diagnose.Explained.
func (e *diedError) Explain() (summary, fix string) {
	fix = "Read its last log lines, correct the cause and apply again. The unit was stopped, so that it does not start over and over"
	if e.attribute == "runtime.path" {
		fix = "The host could not run the engine's program: install it there, or set runtime.path to where it is"
	}
	return "Engine " + e.name + " died at start", fix
}

// DiagnosticAttribute implements diagnose.Attributed.
func (e *diedError) DiagnosticAttribute() string { return e.attribute }

// systemd's exit statuses for what it could not set up itself.
const (
	exitExec  = 203 // the program is not there or is none
	exitUsage = 2   // convention for arguments that a program does not understand
)

// blame names the attribute that most likely made an engine die.
func blame(s engines.Spec, exit int, log string) string {
	switch {
	case exit == exitExec, strings.Contains(log, "203/EXEC"), strings.Contains(log, "Failed to locate executable"):
		return "runtime.path"
	case len(s.ExtraArgs) > 0 && (exit == exitUsage || strings.Contains(log, "flag provided but not defined")):
		return "extra_args"
	case s.Model.ID != "" && strings.Contains(log, s.Model.ID):
		return "model.id"
	}
	return "kind"
}
