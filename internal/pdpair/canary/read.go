package canary

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Prompt is a text of n bytes that no engine has seen before under this seed,
// so that no cache holds it, and in which no part resembles another, so that KV
// of a wrong position gives another answer. It is words of lower-case letters:
// for tokenizers other than bytewise ones it is a few times shorter in tokens.
func Prompt(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 0x6d6f6169)) //nolint:gosec // no secret
	var b strings.Builder
	for b.Len() < n {
		for range 2 + r.IntN(7) {
			b.WriteByte(byte('a' + r.IntN(26)))
		}
		b.WriteByte(' ')
	}
	return b.String()[:n]
}

// Answer is a completion.
type Answer struct {
	Tokens           []string // ids; or one element, the whole text, if the engine tells no ids
	PromptTokens     int
	KVTransferParams map[string]any // for the next engine; nil if there are none
}

// ParseAnswer reads the answer of /v1/completions to a request with
// return_token_ids.
func ParseAnswer(body []byte) (Answer, error) {
	var r struct {
		Choices []struct {
			Text     string `json:"text"`
			TokenIDs []int  `json:"token_ids"`
		} `json:"choices"`
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
		} `json:"usage"`
		KVTransferParams map[string]any `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return Answer{}, fmt.Errorf("the completion is no JSON: %w", err)
	}
	if len(r.Choices) != 1 {
		return Answer{}, fmt.Errorf("the completion has %d choices, not 1", len(r.Choices))
	}
	a := Answer{PromptTokens: r.Usage.PromptTokens, KVTransferParams: r.KVTransferParams}
	switch c := r.Choices[0]; {
	case len(c.TokenIDs) > 0:
		for _, id := range c.TokenIDs {
			a.Tokens = append(a.Tokens, strconv.Itoa(id))
		}
	case c.Text != "":
		a.Tokens = []string{c.Text}
	}
	return a, nil
}

// Sum adds the samples of one counter in Prometheus text, over all its labels.
func Sum(metrics []byte, name string) (int64, error) {
	var sum float64
	found := false
	lines := bufio.NewScanner(bytes.NewReader(metrics))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		if rest[0] == '{' {
			// A label's value may hold braces and spaces; what follows the last brace does not.
			i := strings.LastIndexByte(rest, '}')
			if i < 0 {
				return 0, fmt.Errorf("metric line %q has no closing brace", line)
			}
			rest = rest[i+1:]
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			return 0, fmt.Errorf("metric line %q has no value", line)
		}
		v, err := strconv.ParseFloat(fields[0], 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, fmt.Errorf("metric line %q has no finite value", line)
		}
		sum += v
		found = true
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("metrics: %w", err)
	}
	if !found {
		return 0, fmt.Errorf("metric %s: %w", name, ErrNoMetric)
	}
	if sum < 0 || sum > 1<<53 {
		return 0, fmt.Errorf("metric %s is %v, no count", name, sum)
	}
	return int64(sum), nil
}

// ErrNoMetric says that the text does not hold the metric.
var ErrNoMetric = errors.New("not found")

// ParseVerdict reads the header X-Moai-Transfer-Verdict: "ready" or
// "failed; code=…".
func ParseVerdict(header string) (verdict, code string) {
	verdict, rest, _ := strings.Cut(header, ";")
	for part := range strings.SplitSeq(rest, ";") {
		if c, ok := strings.CutPrefix(strings.TrimSpace(part), "code="); ok {
			code = c
		}
	}
	return strings.TrimSpace(verdict), code
}
