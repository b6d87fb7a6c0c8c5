package engine

import (
	"fmt"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/engines"
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
	if e.cause != nil {
		b.WriteString(": " + e.cause.Error())
	}
	if e.log != "" {
		b.WriteString("\nIts last log lines:\n" + e.log)
	}
	return b.String()
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
