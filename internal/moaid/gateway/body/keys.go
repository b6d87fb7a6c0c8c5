package body

import (
	"bytes"
	"encoding/json"
)

// Key is a member name that the gateway reads or changes.
type Key uint8

// Wanted keys.
const (
	keyOther Key = iota
	KeyModel
	KeyStream
	KeyStreamOptions
	KeyMaxTokens
	KeyMaxCompletionTokens
	KeyMinTokens
	KeyMinCompletionTokens
	KeyN
	KeyBestOf
	KeyBeamSearch
	KeyLogprobs
	KeyPromptLogprobs
	KeyEcho
	KeyPrompt
	KeyTransferParams
	keyCount
)

// names are the keys on the wire; none needs escaping.
var names = [keyCount]string{
	KeyModel:               "model",
	KeyStream:              "stream",
	KeyStreamOptions:       "stream_options",
	KeyMaxTokens:           "max_tokens",
	KeyMaxCompletionTokens: "max_completion_tokens",
	KeyMinTokens:           "min_tokens",
	KeyMinCompletionTokens: "min_completion_tokens",
	KeyN:                   "n",
	KeyBestOf:              "best_of",
	KeyBeamSearch:          "use_beam_search",
	KeyLogprobs:            "logprobs",
	KeyPromptLogprobs:      "prompt_logprobs",
	KeyEcho:                "echo",
	KeyPrompt:              "prompt",
	KeyTransferParams:      "kv_transfer_params",
}

func (k Key) String() string { return names[k] }

// keyOf finds a key by what is between its quotes. A key may be written with
// escapes; to the engine it is the same key.
func keyOf(raw []byte) Key {
	if bytes.IndexByte(raw, '\\') >= 0 {
		var s string
		if err := json.Unmarshal(append(append([]byte{'"'}, raw...), '"'), &s); err != nil {
			return keyOther // not possible: the scanner accepted the string
		}
		raw = []byte(s)
	}
	for k := KeyModel; k < keyCount; k++ {
		if names[k] == string(raw) {
			return k
		}
	}
	return keyOther
}
