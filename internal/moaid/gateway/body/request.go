package body

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Reasons why a request is not split into prefill and decode.
const (
	ReasonN              = "n"
	ReasonBestOf         = "best_of"
	ReasonBeamSearch     = "beam_search"
	ReasonPromptLogprobs = "prompt_logprobs" // needs the prompt's logits, which only computing it gives
)

// Error says what is wrong with a request; the client has to change it.
type Error struct {
	Message string
	Param   string // member that is wrong, "" if it is the body
	Code    string
}

func (e *Error) Error() string { return e.Message }

// Request is a completion request. Its bytes belong to it.
type Request struct {
	Model      string // "" if the request names none
	Stream     bool   // a stream was asked for, as far as the value is true
	DecodeOnly string // reason why it cannot be split, "" if it can
	o          *object
}

// Parse reads what the gateway has to know of a request. It keeps b. Errors are
// *Error.
func Parse(b []byte) (*Request, error) {
	o, err := scan(b)
	if err != nil {
		return nil, &Error{Message: err.Error(), Code: "invalid_json"}
	}
	r := &Request{o: o}
	if v, ok := o.get(KeyModel); ok && string(v) != "null" {
		if v[0] != '"' {
			return nil, &Error{Message: "model must be a string", Param: "model", Code: "invalid_model"}
		}
		if err := json.Unmarshal(v, &r.Model); err != nil {
			return nil, &Error{Message: fmt.Sprintf("model: %v", err), Param: "model", Code: "invalid_model"}
		}
	}
	if v, ok := o.get(KeyPrompt); ok {
		if n := prompts(v); n > 1 {
			return nil, &Error{
				Message: fmt.Sprintf("prompt holds %d prompts: send one request a prompt, since each has its own KV transfer", n),
				Param:   "prompt", Code: "multiple_prompts",
			}
		}
	}
	for _, k := range []Key{KeyMaxTokens, KeyMaxCompletionTokens} {
		if err := o.bounded(k); err != nil {
			return nil, err
		}
	}
	r.Stream = o.is(KeyStream, "true")
	r.DecodeOnly = o.whole()
	return r, nil
}

// MaxTokens bounds what a request may ask for. No model has a context that long;
// what its own context holds only the engine knows.
const MaxTokens = 1 << 24

// bounded checks a number of tokens: prefill is asked for one whatever the client
// wrote, so that a wrong number would cost a whole prompt before decode refuses it.
func (o *object) bounded(k Key) error {
	v, ok := o.get(k)
	if !ok || string(v) == "null" {
		return nil
	}
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil && 1 <= n && n <= MaxTokens {
		return nil
	}
	return &Error{Message: fmt.Sprintf("%s must be an integer from 1 to %d, or null", k, MaxTokens), Param: k.String(), Code: "invalid_" + k.String()}
}

// is reports whether a key has a value that is written so.
func (o *object) is(k Key, values ...string) bool {
	v, ok := o.get(k)
	if !ok {
		return false
	}
	for _, w := range values {
		if string(v) == w {
			return true
		}
	}
	return false
}

// set reports whether a key has a value which is none of those that mean
// nothing.
func (o *object) set(k Key, nothing ...string) bool {
	_, ok := o.get(k)
	return ok && !o.is(k, append(nothing, "null")...)
}

// whole gives the reason why one engine has to do the whole request.
func (o *object) whole() string {
	switch {
	case o.set(KeyN, "1"):
		return ReasonN
	case o.set(KeyBestOf, "1"):
		return ReasonBestOf
	case o.set(KeyBeamSearch, "false"):
		return ReasonBeamSearch
	case o.set(KeyPromptLogprobs, "false"),
		o.set(KeyEcho, "false") && o.set(KeyLogprobs, "false"):
		return ReasonPromptLogprobs
	}
	return ""
}

// prompts counts the prompts in the value of "prompt", which was scanned: a list
// of strings or of lists of tokens holds several, a list of tokens is one.
func prompts(v []byte) int {
	if v[0] != '[' {
		return 1
	}
	s := scanner{b: v, i: 1}
	n := 0
	for s.space(); s.peek() != ']'; s.space() {
		switch s.peek() {
		case '"', '[', '{':
			n++
		}
		if err := s.value(1); err != nil {
			return n // not possible: the value was scanned
		}
		if s.space(); s.peek() == ',' {
			s.i++
		}
	}
	return max(n, 1)
}

var (
	// notForPrefill would make the engine refuse max_tokens 1, or make its
	// answer long.
	notForPrefill = setOf(KeyMaxTokens, KeyMaxCompletionTokens, KeyMinTokens, KeyMinCompletionTokens,
		KeyStream, KeyStreamOptions, KeyN, KeyBestOf, KeyEcho, KeyTransferParams)
	notForDecode = setOf(KeyTransferParams)
	one          = []byte("1")
	no           = []byte("false")
)

// Prefill gives the body for the prefill engine: one token, not streamed, and
// params as kv_transfer_params.
func (r *Request) Prefill(params []byte) Segments {
	add := []field{{KeyMaxTokens, one}}
	if _, ok := r.o.get(KeyMaxCompletionTokens); ok {
		add = append(add, field{KeyMaxCompletionTokens, one})
	}
	add = append(add, field{KeyStream, no}, field{KeyTransferParams, params})
	return r.o.splice(notForPrefill, add...)
}

// Decode gives the body for the decode engine: what the client sent, with
// params as kv_transfer_params, or without any if params is nil. Those of the
// client never pass: they name KV of other requests.
func (r *Request) Decode(params []byte) Segments {
	if params == nil {
		return r.o.splice(notForDecode)
	}
	return r.o.splice(notForDecode, field{KeyTransferParams, params})
}
