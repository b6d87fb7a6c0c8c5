package kvd

import (
	"regexp"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func validName(s string) bool { return nameRE.MatchString(s) }

// peerName is how an engine of a node is written.
func peerName(node, engine string) string { return node + "/" + engine }

// parsePeerName reads node/engine.
func parsePeerName(s string) (node, engine string, ok bool) {
	node, engine, ok = strings.Cut(s, "/")
	return node, engine, ok && validName(node) && validName(engine)
}

// Codes of verdicts that only this package gives.
const (
	codeUnknownSource transfer.Code = "unknown_source"
	codeUnknownEngine transfer.Code = "unknown_engine"
	codeIncompatible  transfer.Code = "incompatible"
	codeNotPaired     transfer.Code = "not_paired"
	codeCorrupt       transfer.Code = "corrupt"
	codeInexact       transfer.Code = "inexact"
	codeOther         transfer.Code = "other" // a peer's, that this version does not know
)

// peerCode is what a peer's code means here. Numbers that are not known have one
// name together: each would make the metrics grow.
func peerCode(c wire.Code) transfer.Code {
	if !c.Known() {
		return codeOther
	}
	return transfer.Code(c.String())
}

var wireCodes = map[transfer.Code]wire.Code{
	transfer.CodeCancelled: wire.CodeCancelled, transfer.CodeWithdrawn: wire.CodeWithdrawn, transfer.CodeNotOffered: wire.CodeNotOffered,
	transfer.CodeTokenHash: wire.CodeTokenHash, codeIncompatible: wire.CodeIncompatible, transfer.CodeDeadline: wire.CodeDeadline,
	transfer.CodeNoRoom: wire.CodeNoRoom, codeCorrupt: wire.CodeCorrupt, codeNotPaired: wire.CodeNotPaired,
	transfer.CodeProtocol: wire.CodeProtocol, codeUnknownEngine: wire.CodeUnknownEngine, transfer.CodeLoadFailed: wire.CodeLoadFailed,
	transfer.CodeNotNeeded: wire.CodeNotNeeded, transfer.CodePeerGone: wire.CodeDeadline, codeUnknownSource: wire.CodeUnknownEngine,
	codeInexact: wire.CodeInexact,
}

// wireCode is the number that a code travels as.
func wireCode(c transfer.Code) wire.Code {
	if w, ok := wireCodes[c]; ok {
		return w
	}
	return wire.CodeCancelled
}

// failureCode is how a verdict names a code on the engine socket, whose list is
// shorter than ours.
func failureCode(c transfer.Code) enginesock.FailureCode {
	switch c {
	case codeUnknownSource, transfer.CodeNotOffered, transfer.CodeTokenHash, codeIncompatible, transfer.CodeWithdrawn,
		transfer.CodePeerGone, transfer.CodeDeadline, transfer.CodeNoRoom, codeCorrupt, codeNotPaired, transfer.CodeCancelled, codeInexact:
		return enginesock.FailureCode(c)
	case codeUnknownEngine:
		return enginesock.FailUnknownSource
	case transfer.CodeProtocol:
		return enginesock.FailCorrupt
	case "shutdown", "replaced":
		return enginesock.FailPeerGone
	default:
		return enginesock.FailCancelled
	}
}
