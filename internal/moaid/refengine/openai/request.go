package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/bytetok"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
)

// body is what both endpoints take.
type body struct {
	Model               string                `json:"model"`
	Prompt              json.RawMessage       `json:"prompt"`
	Messages            []message             `json:"messages"`
	MaxTokens           *int                  `json:"max_tokens"`
	MaxCompletionTokens *int                  `json:"max_completion_tokens"`
	Temperature         *float64              `json:"temperature"`
	Seed                *int64                `json:"seed"`
	Stop                json.RawMessage       `json:"stop"`
	Stream              bool                  `json:"stream"`
	StreamOptions       *streamOptions        `json:"stream_options"`
	IgnoreEOS           bool                  `json:"ignore_eos"`
	N                   *int                  `json:"n"`
	Echo                bool                  `json:"echo"`
	Suffix              *string               `json:"suffix"`
	Logprobs            json.RawMessage       `json:"logprobs"`
	Tools               json.RawMessage       `json:"tools"`
	Transfer            *sched.TransferParams `json:"kv_transfer_params"`
	ReturnTokenIDs      bool                  `json:"return_token_ids"`
	ReturnLogitsHash    bool                  `json:"return_logits_hash"`
	ReturnLogits        bool                  `json:"return_logits"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

const (
	defaultMaxTokens = 16
	maxStops         = 4
	maxStopBytes     = 1024
)

// job is a checked request.
type job struct {
	prompt []int
	params sched.Params
	stops  []string
}

// fault is a wrong request: what is wrong, and at which parameter.
type fault struct{ message, param string }

func (f *fault) Error() string { return f.message }

func unknownModel(asked, model string) *fault {
	return &fault{fmt.Sprintf("The model %q does not exist here, only %q.", asked, model), "model"}
}

func (b *body) job(chat bool, model string) (job, error) {
	var j job
	if b.Model != "" && b.Model != model {
		return j, unknownModel(b.Model, model)
	}
	if err := b.unsupported(); err != nil {
		return j, err
	}
	var err error
	if chat {
		j.prompt, err = chatPrompt(b.Messages)
	} else {
		j.prompt, err = promptTokens(b.Prompt)
	}
	if err != nil {
		return j, err
	}
	n := defaultMaxTokens
	for _, v := range []*int{b.MaxTokens, b.MaxCompletionTokens} {
		if v != nil {
			n = *v
		}
	}
	if n < 1 {
		return j, &fault{fmt.Sprintf("max_tokens is %d and must be at least 1.", n), "max_tokens"}
	}
	j.params = sched.Params{MaxTokens: n, IgnoreEOS: b.IgnoreEOS, HashLogits: b.ReturnLogitsHash, KeepLogits: b.ReturnLogits, Transfer: b.Transfer}
	if b.Temperature != nil {
		if t := *b.Temperature; t < 0 || t > 2 || math.IsNaN(t) {
			return j, &fault{fmt.Sprintf("temperature is %v and must be between 0 and 2.", t), "temperature"}
		}
		j.params.Temperature = *b.Temperature
	}
	if b.Seed != nil {
		j.params.Seed = uint64(*b.Seed)
	}
	if t := b.Transfer; t != nil && t.DoRemoteDecode && t.DoRemotePrefill {
		return j, &fault{"kv_transfer_params asks for remote prefill and remote decode at once.", "kv_transfer_params"}
	}
	if t := b.Transfer; t != nil && t.TransferID != "" && !isID(t.TransferID) {
		return j, &fault{"kv_transfer_params.transfer_id is not 32 lower-case hex digits.", "kv_transfer_params"}
	}
	j.stops, err = stops(b.Stop)
	return j, err
}

func (b *body) unsupported() error {
	switch {
	case b.N != nil && *b.N != 1:
		return &fault{"n must be 1.", "n"}
	case b.Echo:
		return &fault{"echo is not supported.", "echo"}
	case b.Suffix != nil && *b.Suffix != "":
		return &fault{"suffix is not supported.", "suffix"}
	case len(b.Logprobs) > 0 && string(b.Logprobs) != "null" && string(b.Logprobs) != "false":
		return &fault{"logprobs is not supported.", "logprobs"}
	case b.ReturnLogits && b.Stream:
		return &fault{"return_logits is for answers in one piece.", "return_logits"}
	case len(b.Tools) > 0 && string(b.Tools) != "null" && string(b.Tools) != "[]":
		return &fault{"tools is not supported: this engine's model calls none.", "tools"}
	}
	return nil
}

// promptTokens takes a string or one list of token ids.
func promptTokens(raw json.RawMessage) ([]int, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil && len(raw) > 0 && string(raw) != "null" {
		if text == "" {
			return nil, &fault{"prompt is empty.", "prompt"}
		}
		return bytetok.Encode(text), nil
	}
	var ids []int
	if err := json.Unmarshal(raw, &ids); err == nil && len(ids) > 0 {
		for _, id := range ids {
			if id < 0 || id > refmodel.EOS {
				return nil, &fault{fmt.Sprintf("Token id %d is outside 0 to %d.", id, refmodel.EOS), "prompt"}
			}
		}
		return ids, nil
	}
	var many []json.RawMessage
	if json.Unmarshal(raw, &many) == nil && len(many) > 0 {
		if len(many) == 1 {
			return promptTokens(many[0])
		}
		return nil, &fault{"Several prompts in one request are not supported.", "prompt"}
	}
	return nil, &fault{"prompt must be a string or a list of token ids.", "prompt"}
}

// chatPrompt writes a conversation as lines of "role: content", and leaves the
// last one to the model.
func chatPrompt(ms []message) ([]int, error) {
	if len(ms) == 0 {
		return nil, &fault{"messages is empty.", "messages"}
	}
	var out strings.Builder
	for i, m := range ms {
		text, err := content(m.Content)
		if err != nil || m.Role == "" {
			return nil, &fault{fmt.Sprintf("messages[%d] needs a role, and a content of text.", i), "messages"}
		}
		out.WriteString(m.Role + ": " + text + "\n")
	}
	out.WriteString("assistant: ")
	return append([]int{refmodel.BOS}, bytetok.Encode(out.String())...), nil
}

func content(raw json.RawMessage) (string, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err == nil {
		return text, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", err
	}
	for _, p := range parts {
		if p.Type != "text" {
			return "", errors.New("not text")
		}
		text += p.Text
	}
	return text, nil
}

func stops(raw json.RawMessage) ([]string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var one string
	list := []string{}
	if json.Unmarshal(raw, &one) == nil {
		list = []string{one}
	} else if json.Unmarshal(raw, &list) != nil {
		return nil, &fault{"stop must be a string or a list of strings.", "stop"}
	}
	if len(list) > maxStops {
		return nil, &fault{fmt.Sprintf("stop has %d entries, more than %d.", len(list), maxStops), "stop"}
	}
	for _, s := range list {
		if s == "" || len(s) > maxStopBytes {
			return nil, &fault{fmt.Sprintf("An entry of stop is empty or longer than %d bytes.", maxStopBytes), "stop"}
		}
	}
	return list, nil
}

// RankHeader is the header in which a request names the data-parallel replica that
// must answer it.
const RankHeader = "X-Data-Parallel-Rank"

// replica is the replica that a request names; nil for any.
func replica(h http.Header, replicas int) (*int, error) {
	v := h.Values(RankHeader)
	if len(v) == 0 {
		return nil, nil
	}
	n, err := strconv.Atoi(v[0])
	if err != nil || len(v) > 1 || n < 0 || n >= replicas {
		return nil, &fault{fmt.Sprintf("%s: %s is not the number of a data-parallel replica, 0 to %d.", RankHeader, strings.Join(v, ", "), replicas-1), RankHeader}
	}
	return &n, nil
}

func isID(s string) bool {
	if len(s) != 32 {
		return false
	}
	for _, c := range s {
		if !strings.ContainsRune("0123456789abcdef", c) {
			return false
		}
	}
	return true
}
