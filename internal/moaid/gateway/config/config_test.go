package config_test

import (
	"bytes"
	"encoding/base64"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/config"
)

var key = "ed25519:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))

func example() *config.RouterConfig {
	return &config.RouterConfig{
		Name: "front", Listen: "0.0.0.0:8000", KeyFile: "/var/lib/moai/router-front/router.key",
		Pairs: []config.Pair{{
			Name: "main", Model: "openai/gpt-oss-120b",
			Prefill: []config.Engine{{Node: "h100-0", Engine: "prefill-0", Addresses: []string{"192.0.2.1:9610"}, PublicKey: key}},
			Decode:  []config.Engine{{Node: "mi300x-0", Engine: "decode-0", Addresses: []string{"[2001:db8::1]:9610", "mi300x-0.example:9610"}, PublicKey: key}},
		}},
		Timeouts: config.Timeouts{Prefill: config.Duration(90 * time.Second)},
	}
}

func TestRenderAndParse(t *testing.T) {
	want := example()
	b, err := want.Render()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), `"prefill": "1m30s"`) || strings.Contains(string(b), "stream_idle") {
		t.Errorf("unexpected file:\n%s", b)
	}
	got, err := config.Parse(b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	d := got.Timeouts.WithDefaults()
	if time.Duration(d.Prefill) != 90*time.Second || time.Duration(d.Drain) != 30*time.Second {
		t.Errorf("defaults: %+v", d)
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		at     string
		change func(*config.RouterConfig)
	}{
		{"name:", func(c *config.RouterConfig) { c.Name = "Front" }},
		{"listen:", func(c *config.RouterConfig) { c.Listen = "8000" }},
		{"listen:", func(c *config.RouterConfig) { c.Listen = "0.0.0.0:http" }},
		{"key_file:", func(c *config.RouterConfig) { c.KeyFile = "router.key" }},
		{"key_file:", func(c *config.RouterConfig) { c.KeyFile = "/a/../b" }},
		{"pairs:", func(c *config.RouterConfig) { c.Pairs = nil }},
		{"pairs[1].name:", func(c *config.RouterConfig) { c.Pairs = append(c.Pairs, c.Pairs[0]) }},
		{"pairs[0].model:", func(c *config.RouterConfig) { c.Pairs[0].Model = "" }},
		{"pairs[0].decode:", func(c *config.RouterConfig) { c.Pairs[0].Decode = nil }},
		{"pairs[0].prefill[0].node:", func(c *config.RouterConfig) { c.Pairs[0].Prefill[0].Node = "" }},
		{"pairs[0].prefill[0].engine:", func(c *config.RouterConfig) { c.Pairs[0].Prefill[0].Engine = "a/b" }},
		{"pairs[0].prefill[0].addresses:", func(c *config.RouterConfig) { c.Pairs[0].Prefill[0].Addresses = nil }},
		{"pairs[0].decode[0].addresses[1]:", func(c *config.RouterConfig) { c.Pairs[0].Decode[0].Addresses[1] = ":9610" }},
		{"pairs[0].decode[0].public_key:", func(c *config.RouterConfig) { c.Pairs[0].Decode[0].PublicKey = "ed25519:AAAA" }},
		{"pairs[0].decode[0].public_key:", func(c *config.RouterConfig) { c.Pairs[0].Decode[0].PublicKey = strings.TrimPrefix(key, "ed25519:") }},
		{"pairs[0].prefill[1]:", func(c *config.RouterConfig) {
			c.Pairs[0].Prefill = append(c.Pairs[0].Prefill, c.Pairs[0].Prefill[0])
		}},
		{"pairs[0].decode[0]:", func(c *config.RouterConfig) { c.Pairs[0].Decode[0].Node = "h100-0" }},
	} {
		cfg := example()
		c.change(cfg)
		err := cfg.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), c.at) {
			t.Errorf("want an error at %s got %v", c.at, err)
		}
		if _, err := cfg.Render(); err == nil {
			t.Errorf("%s: rendered", c.at)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	b, err := example().Render()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		"", "[]", "{}",
		strings.Replace(string(b), `"listen"`, `"lisen"`, 1),
		strings.Replace(string(b), "1m30s", "90", 1),
		strings.Replace(string(b), "1m30s", "-1s", 1),
		string(b) + "{}",
		string(b) + "x",
	} {
		if _, err := config.Parse([]byte(s)); err == nil {
			t.Errorf("parsed %.80q", s)
		}
	}
}

func FuzzParse(f *testing.F) {
	b, err := example().Render()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := config.Parse(b)
		if err != nil {
			return
		}
		r, err := c.Render()
		if err != nil {
			t.Fatal(err)
		}
		again, err := config.Parse(r)
		if err != nil {
			t.Fatalf("what was rendered is refused: %v\n%s", err, r)
		}
		if r2, err := again.Render(); err != nil || !bytes.Equal(r, r2) {
			t.Fatalf("rendered twice: %v\n%s\n%s", err, r, r2)
		}
	})
}
