package canary

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Outcome is what a canary says about a pair.
type Outcome int

const (
	// Passed says that the answer is right and came from KV that crossed.
	Passed Outcome = iota
	// NotYet says that nothing wrong was seen, and nothing is proved. It may pass later
	// without a change of configuration.
	NotYet
	// Wrong says that the pair gives wrong answers, or does not do what it is for.
	Wrong
)

func (o Outcome) String() string {
	switch o {
	case Passed:
		return "passed"
	case NotYet:
		return "not yet"
	case Wrong:
		return "wrong"
	}
	return "unknown"
}

// Evidence is what was seen of one request that went through a pair.
type Evidence struct {
	Alone []string // tokens of the decode engine alone
	Pair  []string // tokens through prefill and decode

	PromptTokens int // as the engine counted the prompt

	// Verdict is how the decode daemon's claim ended: "ready", "failed" with
	// Code, or "" when the daemon did not say.
	Verdict string
	Code    string

	// Computed is by how much the decode engine's counter of computed prompt
	// tokens rose during the request through the pair, and Requests by how much
	// its counter of requests did; -1 when it could not be read.
	Computed int64
	Requests int64

	// FromToken is the length of the prefix that the decode engine had already.
	FromToken int

	// Lossy says that the pair may change values on the way. Then the two answers
	// need not be equal.
	Lossy bool
	// Conversion, Clipped and Rounded are what the prefill daemon says that it did
	// to how many elements; empty and 0 when it did not say.
	Conversion       string
	Clipped, Rounded int64

	State         string // of the transfer at the decode daemon; "" when it knows none
	BytesMoved    int64  // verified by the decode daemon
	BytesExpected int64  // from the geometry of the cache
}

// Verdict is the judgement.
type Verdict struct {
	Outcome Outcome
	Reasons []string // sentences for the operator; empty when passed
	Notes   []string // of a pair that may change values: what it came to
}

// passing are the failure codes of a claim that may be gone at the next try:
// nothing in them says that the pair is built wrongly.
var passing = []string{"unknown_source", "not_offered", "withdrawn", "peer_gone", "deadline", "no_room", "cancelled"}

// maxComputed is what a decode engine computes of a prompt whose KV it was
// given: the last token, for its logits.
const maxComputed = 1

// Decide judges a request.
func Decide(e Evidence) Verdict {
	var wrong, open []string
	// A wrong answer is one whatever else was seen.
	switch {
	case len(e.Alone) == 0:
		open = append(open, "The decode engine alone gave no tokens to compare with.")
	case e.Lossy && len(e.Pair) == 0:
		open = append(open, "The pair gave no tokens.")
	case !e.Lossy && !slices.Equal(e.Alone, e.Pair):
		wrong = append(wrong, difference(e.Alone, e.Pair))
	}
	if n := e.Clipped + e.Rounded; n > 0 && !e.Lossy {
		wrong = append(wrong, fmt.Sprintf("The conversion changed %d values, which this pair does not allow.", n))
	}
	switch {
	case e.Verdict == "ready":
		w, o := crossed(e)
		wrong, open = append(wrong, w...), append(open, o...)
	case e.Verdict == "failed" && e.Code == "inexact":
		open = append(open, "The KV was not sent (inexact), since it holds values that the decode engine's format cannot hold, so that the decode engine computed the prompt itself. "+
			"Every such prompt is computed again; allow_lossy = true changes the values instead.")
	case e.Verdict == "failed" && slices.Contains(passing, e.Code):
		open = append(open, fmt.Sprintf("The KV did not arrive (%s), so that the decode engine computed the prompt itself.", e.Code))
	case e.Verdict == "failed":
		wrong = append(wrong, fmt.Sprintf("The KV was refused (%s), so that the decode engine computed the prompt itself.", e.Code))
	default:
		wrong = append(wrong, "The decode host's daemon did not claim any KV for the request.")
	}
	switch {
	case len(wrong) > 0:
		return Verdict{Outcome: Wrong, Reasons: append(wrong, open...)}
	case len(open) > 0:
		return Verdict{Outcome: NotYet, Reasons: open}
	}
	v := Verdict{Outcome: Passed}
	if e.Lossy {
		v.Notes = agreement(e)
	}
	return v
}

// agreement reports, without judging, how near the answers are.
func agreement(e Evidence) []string {
	n := common(e.Alone, e.Pair)
	first := "The first token is the decode engine's own."
	if n == 0 {
		first = fmt.Sprintf("The first token is %s instead of %s.", e.Pair[0], e.Alone[0])
	}
	return []string{first,
		fmt.Sprintf("The first %d of %d tokens agree.", n, len(e.Alone)),
		fmt.Sprintf("%d values were clipped and %d rounded (%s).", e.Clipped, e.Rounded, cmp.Or(e.Conversion, "the prefill node's daemon did not say how")),
	}
}

// common is the length of the common beginning of two answers.
func common(a, b []string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// crossed judges whether a request whose KV is said to have arrived used it.
func crossed(e Evidence) (wrong, open []string) {
	switch {
	case e.BytesExpected < 1:
		open = append(open, "The geometry of the cache gives no bytes to expect.")
	case e.State == "":
		wrong = append(wrong, "The decode host's daemon has no record of the transfer.")
	case e.FromToken > 0:
		open = append(open, fmt.Sprintf("The decode engine had the first %d tokens in its own cache, so that not all of its answer came from KV that crossed.", e.FromToken))
	case e.BytesMoved != e.BytesExpected:
		wrong = append(wrong, fmt.Sprintf("%d bytes of KV arrived, but a prompt of %d tokens has %d.", e.BytesMoved, e.PromptTokens, e.BytesExpected))
	case e.State != "committed":
		open = append(open, fmt.Sprintf("The transfer is %q: the decode engine has not said that it loaded the KV.", e.State))
	}
	switch {
	case e.Computed < 0 || e.Requests < 0:
		open = append(open, "The decode engine's metrics do not tell how many prompt tokens it computed.")
	case e.Requests < 1:
		wrong = append(wrong, "The decode engine did not count the request.")
	case e.Requests > 1 && e.Computed > maxComputed:
		open = append(open, fmt.Sprintf("The decode engine served %d requests at the same time, so that what it computed for this one cannot be told.", e.Requests))
	case e.Computed > maxComputed:
		wrong = append(wrong, fmt.Sprintf("The decode engine computed %d tokens of the prompt itself; with KV that crossed it computes at most %d.", e.Computed, maxComputed))
	}
	return wrong, open
}

// difference says where two answers part.
func difference(alone, pair []string) string {
	n := common(alone, pair)
	return fmt.Sprintf("The answer through the pair differs from that of the decode engine alone at token %d of %d: %s instead of %s.",
		n+1, len(alone), from(pair, n), from(alone, n))
}

func from(tokens []string, n int) string {
	const most = 8
	if n >= len(tokens) {
		return "the end"
	}
	return fmt.Sprintf("%q", strings.Join(tokens[n:min(len(tokens), n+most)], " "))
}
