package openai

import (
	"encoding/json"
	"net/http"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
)

// answer writes what a request produces.
type answer struct {
	req     *sched.Request
	body    *body
	chat    bool
	model   string
	created int64
	text    text

	tokens   []int
	hashes   []string
	logits   [][]float32
	end      sched.Output // the last output
	finished bool
}

type usage struct {
	PromptTokens     int          `json:"prompt_tokens"`
	CompletionTokens int          `json:"completion_tokens"`
	TotalTokens      int          `json:"total_tokens"`
	Details          usageDetails `json:"prompt_tokens_details"`
}

type usageDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

type choice struct {
	Index        int           `json:"index"`
	Text         *string       `json:"text,omitempty"`
	Message      *chatMessage  `json:"message,omitempty"`
	Delta        *chatMessage  `json:"delta,omitempty"`
	Logprobs     *struct{}     `json:"logprobs"`
	FinishReason *sched.Reason `json:"finish_reason"`
	TokenIDs     []int         `json:"token_ids,omitempty"`
	LogitsSHA256 []string      `json:"logits_sha256,omitempty"`
	Logits       [][]float32   `json:"logits,omitempty"`
}

type chatMessage struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content"`
}

type response struct {
	ID       string                `json:"id"`
	Object   string                `json:"object"`
	Created  int64                 `json:"created"`
	Model    string                `json:"model"`
	Choices  []choice              `json:"choices"`
	Usage    *usage                `json:"usage,omitempty"`
	Transfer *sched.TransferParams `json:"kv_transfer_params,omitempty"`
}

// next waits for output and gives its text; false when the client has gone.
func (a *answer) next(r *http.Request) (string, []int, []string, bool) {
	select {
	case <-r.Context().Done():
		return "", nil, nil, false
	case <-a.req.Changed():
	}
	o := a.req.Next()
	piece := a.text.push(o.Tokens)
	a.end = o
	a.tokens = append(a.tokens, o.Tokens...)
	a.hashes = append(a.hashes, o.LogitsSHA256...)
	a.logits = append(a.logits, o.Logits...)
	switch {
	case a.text.done:
		a.end.Ended, a.end.Err, a.finished = sched.EndStop, "", true
	case o.Ended != "":
		piece += a.text.flush()
		a.finished = true
	}
	return piece, o.Tokens, o.LogitsSHA256, true
}

func (a *answer) usage() *usage {
	n := len(a.req.Prompt)
	return &usage{PromptTokens: n, CompletionTokens: len(a.tokens), TotalTokens: n + len(a.tokens), Details: usageDetails{CachedTokens: a.end.Cached}}
}

func (a *answer) response(chunk bool) response {
	id, object := "cmpl-", "text_completion"
	if a.chat {
		id, object = "chatcmpl-", "chat.completion"
		if chunk {
			object = "chat.completion.chunk"
		}
	}
	return response{ID: id + a.req.ID, Object: object, Created: a.created, Model: a.model, Choices: []choice{}}
}

func (a *answer) extras(c *choice, tokens []int, hashes []string) {
	if a.body.ReturnTokenIDs {
		c.TokenIDs = tokens
	}
	c.LogitsSHA256 = hashes
}

// whole answers in one piece.
func (a *answer) whole(w http.ResponseWriter, r *http.Request) {
	var all string
	for !a.finished {
		piece, _, _, ok := a.next(r)
		if !ok {
			return
		}
		all += piece
	}
	if message, code := a.failure(); code != "" {
		writeError(w, http.StatusInternalServerError, kindServer, message, "", code)
		return
	}
	c := choice{FinishReason: &a.end.Ended, Logits: a.logits}
	if a.chat {
		c.Message = &chatMessage{Role: "assistant", Content: all}
	} else {
		c.Text = &all
	}
	a.extras(&c, a.tokens, a.hashes)
	resp := a.response(false)
	resp.Choices = append(resp.Choices, c)
	resp.Usage = a.usage()
	resp.Transfer = a.end.Transfer
	writeJSON(w, http.StatusOK, resp)
}

// Codes of requests that ended without an answer.
const (
	codeGone    = "engine_failed"  // another engine, or this one's next run, may answer
	codeFailed  = "request_failed" // of this request alone, as when its KV did not come
	codeAborted = "request_aborted"
)

// failure says why there is no answer, or no more of it; an empty code says that
// there is.
func (a *answer) failure() (message, code string) {
	switch {
	case a.end.Ended == sched.EndAbort:
		return "the request was aborted", codeAborted
	case a.end.Ended != sched.EndError:
		return "", ""
	case a.end.Gone:
		return a.end.Err, codeGone
	}
	return a.end.Err, codeFailed
}

// stream answers with server-sent events. Before the first token nothing is
// written, so that a request that fails early still has its status. One that fails
// later ends with an event that says so, and nothing after it: what is complete
// ends with [DONE].
func (a *answer) stream(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	began := false
	send := func(v any) bool {
		b, err := json.Marshal(v)
		if err != nil {
			return false
		}
		if !began {
			began = true
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Cache-Control", "no-cache")
			w.WriteHeader(http.StatusOK)
		}
		_, err = w.Write(append(append([]byte("data: "), b...), "\n\n"...))
		return err == nil && rc.Flush() == nil
	}
	for first := true; !a.finished; {
		piece, tokens, hashes, ok := a.next(r)
		if !ok {
			return
		}
		if message, code := a.failure(); code != "" {
			if !began {
				writeError(w, http.StatusInternalServerError, kindServer, message, "", code)
				return
			}
			send(errorBody(kindServer, message, "", code))
			return
		}
		if piece == "" && !a.finished && !a.body.ReturnTokenIDs && !a.body.ReturnLogitsHash && !first {
			continue
		}
		if !send(a.chunk(piece, tokens, hashes, first)) {
			return
		}
		first = false
	}
	if o := a.body.StreamOptions; o != nil && o.IncludeUsage {
		resp := a.response(true)
		resp.Usage = a.usage()
		if !send(resp) {
			return
		}
	}
	if _, err := w.Write([]byte("data: [DONE]\n\n")); err == nil {
		_ = rc.Flush() // the client may have gone
	}
}

func (a *answer) chunk(piece string, tokens []int, hashes []string, first bool) response {
	c := choice{}
	if a.chat {
		c.Delta = &chatMessage{Content: piece}
		if first {
			c.Delta.Role = "assistant"
		}
	} else {
		c.Text = &piece
	}
	resp := a.response(true)
	if a.finished {
		c.FinishReason = &a.end.Ended
		resp.Transfer = a.end.Transfer
	}
	a.extras(&c, tokens, hashes)
	resp.Choices = append(resp.Choices, c)
	return resp
}
