// Package proof judges whether a completion was really decoded from KV that
// crossed. Equal text alone proves nothing, since a decode engine that silently
// computes the prompt itself gives equal text too. Pure.
package proof

import "fmt"

// Evidence is what was seen of one disaggregated completion.
type Evidence struct {
	Text                   string // what came out through prefill and decode
	AloneText              string // what the decode engine gave alone, for the same prompt
	PromptTokens           int
	DecodeComputed         int   // prompt tokens that the decode engine computed for it
	BytesMoved             int64 // verified by the decode host's daemon
	BytesExpected          int64 // from the geometry of the cache
	Chunks                 int64
	TransferState          string // as the decode host's daemon reports it
	FellBackToDecodeOnly   bool
	Route                  string
	ExpectedRecitationPart string // what the text must begin with; empty if not known
}

// Verdict is the judgement of one completion.
type Verdict struct {
	SameTokens bool
	KVUsed     bool
	Failures   []string
}

// OK means that the text is right and came from KV that crossed.
func (v Verdict) OK() bool { return len(v.Failures) == 0 }

// Judge checks the evidence of one completion against control (a) of the
// correctness claim: same tokens, at most one prompt token computed on decode,
// and exactly the bytes that geometry gives.
func Judge(e Evidence) Verdict {
	var v Verdict
	fail := func(format string, args ...any) { v.Failures = append(v.Failures, fmt.Sprintf(format, args...)) }
	v.SameTokens = e.Text != "" && e.Text == e.AloneText
	if !v.SameTokens {
		fail("the text through the pair differs from that of the decode engine alone: %q against %q", clip(e.Text), clip(e.AloneText))
	}
	if n := len(e.ExpectedRecitationPart); n > 0 && (len(e.Text) < n || e.Text[:n] != e.ExpectedRecitationPart) {
		fail("the text is no recitation: it begins with %q, expected %q", clip(e.Text), clip(e.ExpectedRecitationPart))
	}
	used := true
	if e.FellBackToDecodeOnly {
		used = false
		fail("the request went to the decode engine alone (%s)", e.Route)
	}
	if e.DecodeComputed > 1 {
		used = false
		fail("the decode engine computed %d prompt tokens itself, at most 1 is right", e.DecodeComputed)
	}
	if e.BytesExpected < 1 || e.BytesMoved != e.BytesExpected {
		used = false
		fail("%d bytes of KV arrived, geometry gives %d for %d tokens", e.BytesMoved, e.BytesExpected, e.PromptTokens)
	}
	if e.TransferState != "committed" {
		used = false
		fail("the transfer is %q, not committed", e.TransferState)
	}
	v.KVUsed = used
	return v
}

func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}
