package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Completion is one streamed answer and when its parts came.
type Completion struct {
	Text         string
	PromptTokens int
	Tokens       int
	TTFT         time.Duration   // request sent to first event with text
	ITL          []time.Duration // between events with text
	Transfer     string          // id, from the router
	Route        string          // as the router explains it
}

// MedianITL is the median time between tokens, 0 for fewer than two.
func (c Completion) MedianITL() time.Duration {
	if len(c.ITL) == 0 {
		return 0
	}
	s := slices.Clone(c.ITL)
	slices.Sort(s)
	return s[len(s)/2]
}

type completionEvent struct {
	Choices []struct {
		Text string `json:"text"`
	} `json:"choices"`
	Usage *struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// complete streams a completion from an OpenAI-compatible base URL
// (http://host:port/v1) and calls show with each piece of text as it comes.
func complete(ctx context.Context, base, model, text string, maxTokens int, show func(string)) (Completion, error) {
	body, err := json.Marshal(map[string]any{
		"model": model, "prompt": text, "max_tokens": maxTokens, "temperature": 0, "stream": true,
		"stream_options": map[string]any{"include_usage": true},
	})
	if err != nil {
		return Completion{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/completions", bytes.NewReader(body))
	if err != nil {
		return Completion{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	start := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Completion{}, err
	}
	defer func() { _ = resp.Body.Close() }() // everything that matters was read
	if resp.StatusCode != http.StatusOK {
		b, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return Completion{}, fmt.Errorf("the router answered %s: %s (%w)", resp.Status, b, errOrEOF(err))
	}
	c := Completion{Transfer: resp.Header.Get("X-Moai-Transfer"), Route: resp.Header.Get("X-Moai-Route")}
	if err := c.read(resp.Body, start, show); err != nil {
		return c, err
	}
	return c, nil
}

func errOrEOF(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}

// read takes server-sent events until [DONE]; a stream that ends without it was cut.
func (c *Completion) read(r io.Reader, start time.Time, show func(string)) error {
	var text strings.Builder
	last := start
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			c.Text = text.String()
			return nil
		}
		var ev completionEvent
		if err := json.Unmarshal([]byte(data), &ev); err != nil {
			return fmt.Errorf("event %q: %w", data, err)
		}
		if ev.Error != nil {
			return fmt.Errorf("the stream reported: %s", ev.Error.Message)
		}
		if ev.Usage != nil {
			c.PromptTokens, c.Tokens = ev.Usage.PromptTokens, ev.Usage.CompletionTokens
		}
		if len(ev.Choices) == 0 || ev.Choices[0].Text == "" {
			continue
		}
		now := time.Now()
		if text.Len() == 0 {
			c.TTFT = now.Sub(start)
		} else {
			c.ITL = append(c.ITL, now.Sub(last))
		}
		last = now
		text.WriteString(ev.Choices[0].Text)
		if show != nil {
			show(ev.Choices[0].Text)
		}
	}
	c.Text = text.String()
	if err := lines.Err(); err != nil {
		return err
	}
	return fmt.Errorf("the stream was cut after %d bytes of text", text.Len())
}
