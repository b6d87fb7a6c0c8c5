package wire

import "fmt"

// Code says why a transfer (ABORT) or a session (GOODBYE) ended.
type Code uint16

// Codes of ABORT and GOODBYE.
const (
	CodeCancelled     Code = 1
	CodeWithdrawn     Code = 2
	CodeNotOffered    Code = 3
	CodeTokenHash     Code = 4
	CodeIncompatible  Code = 5
	CodeDeadline      Code = 6
	CodeNoRoom        Code = 7
	CodeCorrupt       Code = 8
	CodeNotPaired     Code = 9
	CodeProtocol      Code = 10
	CodeEncryption    Code = 11
	CodeShutdown      Code = 12
	CodeReplaced      Code = 13
	CodeUnknownEngine Code = 14
	CodeLoadFailed    Code = 15
	CodeNotNeeded     Code = 16
	CodeUntrusted     Code = 17
	CodeInexact       Code = 18
)

var codeNames = map[Code]string{
	CodeCancelled:     "cancelled",
	CodeWithdrawn:     "withdrawn",
	CodeNotOffered:    "not_offered",
	CodeTokenHash:     "token_hash",
	CodeIncompatible:  "incompatible",
	CodeDeadline:      "deadline",
	CodeNoRoom:        "no_room",
	CodeCorrupt:       "corrupt",
	CodeNotPaired:     "not_paired",
	CodeProtocol:      "protocol",
	CodeEncryption:    "encryption",
	CodeShutdown:      "shutdown",
	CodeReplaced:      "replaced",
	CodeUnknownEngine: "unknown_engine",
	CodeLoadFailed:    "load_failed",
	CodeNotNeeded:     "not_needed",
	CodeUntrusted:     "untrusted",
	CodeInexact:       "inexact",
}

// Known reports whether this version knows the code.
func (c Code) Known() bool { return codeNames[c] != "" }

// String is the name in the protocol document, or code_N for a number that
// this version does not know.
func (c Code) String() string {
	if s, ok := codeNames[c]; ok {
		return s
	}
	return fmt.Sprintf("code_%d", uint16(c))
}

// Error is a violation of the protocol, or a check that failed, with the code
// that the session ends with.
type Error struct {
	Code   Code
	Reason string
}

func (e *Error) Error() string { return e.Reason }

func protocolError(format string, args ...any) error {
	return &Error{Code: CodeProtocol, Reason: fmt.Sprintf(format, args...)}
}
