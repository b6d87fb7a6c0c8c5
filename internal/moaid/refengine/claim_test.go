package refengine

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

func TestFingerprintSaysWhatIsClaimed(t *testing.T) {
	c := Default()
	c.Format.DType, c.Format.Scales = kvcache.FP8E4M3FN, kvcache.ScaleTensor
	c.Seed, c.ClaimSeed, c.ClaimScales = 2, 1, kvcache.ScaleNone
	claimed, err := c.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	kept, err := c.kept()
	if err != nil {
		t.Fatal(err)
	}
	honest := refmodel.DefaultFormat()
	honest.DType = kvcache.FP8E4M3FN
	m, err := refmodel.Lookup(c.Model)
	if err != nil {
		t.Fatal(err)
	}
	want, err := m.Fingerprint(1, honest)
	if err != nil {
		t.Fatal(err)
	}
	if claimed.Hash() != want.Hash() || kept.Storage.Scales.Kind != kvcache.ScaleTensor {
		t.Errorf("claims %+v, keeps %+v", claimed.Storage, kept.Storage)
	}
}

func TestLogitsAreThoseOfTheTokens(t *testing.T) {
	_, s := start(t, func(c *Config) { c.Model = "moai/seeded" })
	status, body := post(t.Context(), t, s, "/v1/completions", `{"prompt":[1,2,3],"max_tokens":3,"ignore_eos":true,"return_token_ids":true,"return_logits":true}`)
	var r struct {
		Choices []struct {
			Tokens []int       `json:"token_ids"`
			Logits [][]float32 `json:"logits"`
		} `json:"choices"`
	}
	if err := json.Unmarshal([]byte(body), &r); err != nil || status != http.StatusOK || len(r.Choices) != 1 || len(r.Choices[0].Logits) != 3 {
		t.Fatalf("%d %s %v", status, body, err)
	}
	for i, logits := range r.Choices[0].Logits {
		best := 0
		for j, x := range logits {
			if x > logits[best] {
				best = j
			}
		}
		if best != r.Choices[0].Tokens[i] {
			t.Errorf("token %d is %d, the logits say %d", i, r.Choices[0].Tokens[i], best)
		}
	}
	if status, body := post(t.Context(), t, s, "/v1/completions", `{"prompt":[1],"stream":true,"return_logits":true}`); status != http.StatusBadRequest {
		t.Errorf("a stream of logits: %d %s", status, body)
	}
}
