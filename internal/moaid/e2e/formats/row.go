package formats

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Kind says what a row is of.
type Kind string

// Kinds of rows.
const (
	KindVerdict Kind = "verdict" // what both daemons say of two formats; no prompt
	KindPlain   Kind = "plain"   // a prompt of an honest pair
	KindWrong   Kind = "wrong"   // prefill has other weights than it claims
	KindFlip    Kind = "flip"    // one bit was flipped after verification
	KindSwap    Kind = "swap"    // a page was replaced by another after verification
	KindNoop    Kind = "noop"    // a transfer that moved nothing
	KindSilent  Kind = "silent"  // decode computed the prompt itself, without being told of a transfer
	KindRefused Kind = "refused" // a prompt of a pair that may not exchange KV
	KindInexact Kind = "inexact" // a guarded conversion met a value that decode's format does not have
	KindLossy   Kind = "lossy"   // a prompt of a pair that may lose values
)

// Row is one prompt, or one verdict, as it was observed.
type Row struct {
	Kind    Kind   `json:"kind"`
	Set     string `json:"set"`
	Model   string `json:"model"`
	Prefill string `json:"prefill"` // names of formats
	Decode  string `json:"decode"`
	Claim   Claim  `json:"claim,omitempty"`

	PromptTokens  int      `json:"prompt_tokens,omitempty"`
	Want          []int    `json:"want,omitempty"`        // tokens of decode alone, or the recited ones
	Got           []int    `json:"got,omitempty"`         // tokens of the pair
	WantLogits    []string `json:"want_logits,omitempty"` // hashes of logits, a token
	GotLogits     []string `json:"got_logits,omitempty"`
	Computed      int      `json:"computed"` // prompt tokens that decode computed
	Bytes         int64    `json:"bytes"`    // KV that decode received
	BytesExpected int64    `json:"bytes_expected"`

	Expected string `json:"expected,omitempty"` // verdict and conversion, of kvcompat
	Said     string `json:"said,omitempty"`     // verdict and conversion, of the daemons
	End      string `json:"end,omitempty"`      // why the transfer ended, where it was not committed
	Clipped  int64  `json:"clipped"`            // elements that the conversion could not preserve
	Rounded  int64  `json:"rounded"`

	MaxError  float64 `json:"max_error,omitempty"` // of logits, until tokens differ
	MeanError float64 `json:"mean_error,omitempty"`

	Error string `json:"error,omitempty"` // why there is no observation
}

// ID is as that of a [Pair].
func (r *Row) ID() string { return id(r.Set, r.Model, r.Prefill, r.Decode) }

// Faults says in what a row differs from what an honest pair has: other tokens, other
// logits, and what is right for the wrong reason.
func (r *Row) Faults() []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if r.Error != "" {
		say("%s", r.Error)
		return out
	}
	if len(r.Got) == 0 || !slices.Equal(r.Got, r.Want) {
		say("got tokens %v, want %v", r.Got, r.Want)
	}
	if r.Claim == ClaimBits && (len(r.GotLogits) != len(r.Got) || !slices.Equal(r.GotLogits, r.WantLogits)) {
		say("the logits differ")
	}
	if r.Claim != ClaimBits && r.Claim != ClaimRecites {
		say("nothing is claimed")
	}
	if r.Computed < 0 || r.Computed > 1 {
		say("decode computed %d prompt tokens, at most 1 is right", r.Computed)
	}
	if r.BytesExpected <= 0 || r.Bytes != r.BytesExpected {
		say("decode received %d bytes, geometry gives %d", r.Bytes, r.BytesExpected)
	}
	if r.Expected == "" || r.Said != r.Expected {
		say("the daemon converted %q, the plan says %q", r.Said, r.Expected)
	}
	if r.Clipped != 0 || r.Rounded != 0 {
		say("%d values were clipped and %d rounded", r.Clipped, r.Rounded)
	}
	if r.End != "" {
		say("the transfer ended: %s", r.End)
	}
	return out
}

// recomputed says in what a row differs from a request that decode computed itself
// because the transfer ended for the reason given.
func (r *Row) recomputed(reason string) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if r.Error != "" {
		say("%s", r.Error)
		return out
	}
	if len(r.Got) == 0 || !slices.Equal(r.Got, r.Want) || !slices.Equal(r.GotLogits, r.WantLogits) {
		say("got tokens %v, want %v, or other logits", r.Got, r.Want)
	}
	if r.Computed != r.PromptTokens {
		say("decode computed %d prompt tokens of %d", r.Computed, r.PromptTokens)
	}
	if !strings.Contains(r.End, reason) {
		say("the transfer ended with %q, not as %s", r.End, reason)
	}
	return out
}

// ReadRows reads one JSON object a line.
func ReadRows(r io.Reader) ([]Row, error) {
	var out []Row
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	for {
		var row Row
		switch err := dec.Decode(&row); {
		case err == io.EOF:
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("row %d: %w", len(out)+1, err)
		}
		out = append(out, row)
	}
}

// WriteRow writes a row as one line.
func WriteRow(w io.Writer, r *Row) error {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(r); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}
