package body

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

const params = `{"do_remote_decode":true}`

func TestSplicesKeepTheRest(t *testing.T) {
	for _, c := range []struct{ name, in, prefill, decode string }{
		{
			"order, big integers, escapes and unknown fields",
			`{ "seed": 123456789012345678901234567890, "model":"m", "x":{"n":3, "stream":true} , "prompt":"\u00e9\/é","max_tokens": 16 }`,
			`{"seed": 123456789012345678901234567890, "model":"m", "x":{"n":3, "stream":true} , "prompt":"\u00e9\/é","max_tokens":1,"stream":false,"kv_transfer_params":P}`,
			`{"seed": 123456789012345678901234567890, "model":"m", "x":{"n":3, "stream":true} , "prompt":"\u00e9\/é","max_tokens": 16,"kv_transfer_params":P}`,
		},
		{
			"neighbours, first and last",
			`{"stream":true,"stream_options":{"include_usage":true},"a":1,"max_completion_tokens":9,"min_tokens":2,"b":2,"n":1}`,
			`{"a":1,"b":2,"max_tokens":1,"max_completion_tokens":1,"stream":false,"kv_transfer_params":P}`,
			`{"stream":true,"stream_options":{"include_usage":true},"a":1,"max_completion_tokens":9,"min_tokens":2,"b":2,"n":1,"kv_transfer_params":P}`,
		},
		{
			"duplicates, and keys written with escapes",
			`{"max_tokens":1,"k":0,"max_tok\u0065ns":7,"kv_transfer_params":{"evil":1},"\u006b\u0076_transfer_params":2}`,
			`{"k":0,"max_tokens":1,"stream":false,"kv_transfer_params":P}`,
			`{"max_tokens":1,"k":0,"max_tok\u0065ns":7,"kv_transfer_params":P}`,
		},
		{"empty", ` { } `, `{"max_tokens":1,"stream":false,"kv_transfer_params":P}`, `{"kv_transfer_params":P}`},
		{"all gone", `{"stream":true}`, `{"max_tokens":1,"stream":false,"kv_transfer_params":P}`, `{"stream":true,"kv_transfer_params":P}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Parse([]byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			if got, want := string(r.Prefill([]byte(params)).Bytes()), strings.ReplaceAll(c.prefill, "P}", params+"}"); got != want {
				t.Errorf("prefill\n got %s\nwant %s", got, want)
			}
			d := r.Decode([]byte(params))
			if got, want := string(d.Bytes()), strings.ReplaceAll(c.decode, "P}", params+"}"); got != want {
				t.Errorf("decode\n got %s\nwant %s", got, want)
			}
			var b bytes.Buffer
			if n, err := b.ReadFrom(d.Reader()); err != nil || n != d.Len() || !bytes.Equal(b.Bytes(), d.Bytes()) {
				t.Errorf("Reader and Len do not agree with Bytes: %d, %v", n, err)
			}
		})
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		in, model, decodeOnly, code string
		stream                      bool
	}{
		{in: `{"model":"a\u0062","stream":true}`, model: "ab", stream: true},
		{in: `{"model":null,"stream":null}`},
		{in: `{"model":"a","model":"b"}`, model: "b"},
		{in: `{"model":7}`, code: "invalid_model"},
		{in: `{"x":{"model":"no","n":2}}`},
		{in: `{"n":1}`}, {in: `{"n":null}`}, {in: `{"n":2}`, decodeOnly: ReasonN}, {in: `{"n":1.0}`, decodeOnly: ReasonN},
		{in: `{"best_of":3}`, decodeOnly: ReasonBestOf},
		{in: `{"use_beam_search":true}`, decodeOnly: ReasonBeamSearch}, {in: `{"use_beam_search":false}`},
		{in: `{"prompt_logprobs":0}`, decodeOnly: ReasonPromptLogprobs}, {in: `{"prompt_logprobs":null}`},
		{in: `{"echo":true}`}, {in: `{"echo":true,"logprobs":1}`, decodeOnly: ReasonPromptLogprobs}, {in: `{"logprobs":true}`},
		{in: `{"prompt":"a"}`}, {in: `{"prompt":["a"]}`}, {in: `{"prompt":[1,2,3]}`}, {in: `{"prompt":[[1,2]]}`}, {in: `{"prompt":[]}`},
		{in: `{"prompt":["a","b"]}`, code: "multiple_prompts"}, {in: `{"prompt":[[1],[2]]}`, code: "multiple_prompts"},
		{in: `{"max_tokens":1}`}, {in: `{"max_tokens":16777216}`}, {in: `{"max_tokens":null,"max_completion_tokens":null}`}, {in: `{"max_tokens":0,"max_tokens":5}`},
		{in: `{"max_tokens":0}`, code: "invalid_max_tokens"}, {in: `{"max_tokens":-1}`, code: "invalid_max_tokens"}, {in: `{"max_tokens":-0}`, code: "invalid_max_tokens"},
		{in: `{"max_tokens":1.5}`, code: "invalid_max_tokens"}, {in: `{"max_tokens":1e3}`, code: "invalid_max_tokens"}, {in: `{"max_tokens":"7"}`, code: "invalid_max_tokens"},
		{in: `{"max_tokens":true}`, code: "invalid_max_tokens"}, {in: `{"max_tokens":16777217}`, code: "invalid_max_tokens"}, {in: `{"max_tokens":99999999999999999999}`, code: "invalid_max_tokens"},
		{in: `{"max_completion_tokens":0}`, code: "invalid_max_completion_tokens"}, {in: `{"max_tokens":5,"max_completion_tokens":[1]}`, code: "invalid_max_completion_tokens"},
		{in: `[]`, code: "invalid_json"}, {in: ``, code: "invalid_json"}, {in: `{"a":01}`, code: "invalid_json"},
		{in: `{"a":1,}`, code: "invalid_json"}, {in: `{,"a":1}`, code: "invalid_json"}, {in: `{"a":1} {}`, code: "invalid_json"},
		{in: "{\"a\":\"\xff\"}", code: "invalid_json"}, {in: "{\"a\":\"\n\"}", code: "invalid_json"}, {in: "{\"a\":1\x00}", code: "invalid_json"},
		{in: `{"a":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, code: "invalid_json"},
	} {
		r, err := Parse([]byte(c.in))
		var e *Error
		switch {
		case c.code != "":
			if !errors.As(err, &e) || e.Code != c.code {
				t.Errorf("%.60q: got %v, want code %s", c.in, err, c.code)
			}
		case err != nil:
			t.Errorf("%q: %v", c.in, err)
		case r.Model != c.model || r.Stream != c.stream || r.DecodeOnly != c.decodeOnly:
			t.Errorf("%q: got %q %v %q", c.in, r.Model, r.Stream, r.DecodeOnly)
		}
	}
}

func TestTransferParams(t *testing.T) {
	p, id, err := TransferParams([]byte(`{"id":"c","choices":[{"kv_transfer_params":1}],"kv_transfer_params": {"transfer_id":"ab", "big":12345678901234567890123} }`))
	if err != nil || id != "ab" || string(p) != `{"transfer_id":"ab", "big":12345678901234567890123}` {
		t.Errorf("got %s, %q, %v", p, id, err)
	}
	for _, in := range []string{`{}`, `{"kv_transfer_params":null}`, `{"kv_transfer_params":{}}`} {
		if _, _, err := TransferParams([]byte(in)); !errors.Is(err, ErrNoParams) {
			t.Errorf("%s: got %v", in, err)
		}
	}
	for _, in := range []string{`no`, `{"kv_transfer_params":[1]}`, `{"kv_transfer_params":{"transfer_id":1}}`} {
		if _, _, err := TransferParams([]byte(in)); err == nil || errors.Is(err, ErrNoParams) {
			t.Errorf("%s: got %v", in, err)
		}
	}
}

// fields decodes the outermost object with encoding/json: an independent reading
// of keys and raw values, in order, duplicates included.
func fields(b []byte) ([][2]string, bool) {
	dec := json.NewDecoder(bytes.NewReader(b))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, false
	}
	var out [][2]string
	for dec.More() {
		k, err := dec.Token()
		if err != nil {
			return nil, false
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, false
		}
		out = append(out, [2]string{k.(string), string(v)})
	}
	return out, true
}

func FuzzSplice(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a":1}`, `{"stream":true,"a":[1,{"n":2}],"n":2}`, `{"model":"m","prompt":["a","b"],"max_tokens":5}`,
		`{"max_tokens":1,"max_tokens":2,"k":"\ud800","mod\u0065l":"x"}`, ` { "n" : -1.5e+3 , "b" : null } `, `{"a":"\\\"","echo":true,"logprobs":3}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in := bytes.Clone(b)
		o, err := scan(b)
		if err == nil && !json.Valid(b) {
			t.Fatalf("accepted what is no JSON: %q", b)
		}
		if err != nil {
			if json.Valid(b) && utf8.Valid(b) && bytes.TrimLeft(b, " \t\r\n")[0] == '{' && bytes.Count(b, []byte("["))+bytes.Count(b, []byte("{")) < maxDepth {
				t.Fatalf("refused JSON: %v: %q", err, b)
			}
			return
		}
		want, ok := fields(b)
		if !ok {
			t.Fatal("encoding/json did not read it")
		}
		kept := want[:0:0]
		for _, kv := range want {
			if k := keyOf([]byte(strings.Trim(string(mustJSON(t, kv[0])), `"`))); !notForPrefill.has(k) {
				kept = append(kept, kv)
			}
		}
		kept = append(kept, [2]string{"kv_transfer_params", params})
		spliced := o.splice(notForPrefill, field{KeyTransferParams, []byte(params)}).Bytes()
		got, ok := fields(spliced)
		if !ok || !json.Valid(spliced) || !reflect.DeepEqual(got, kept) {
			t.Fatalf("spliced %q to %q: got %q, want %q", b, spliced, got, kept)
		}
		if !bytes.Equal(in, b) {
			t.Fatal("the input was changed")
		}
		if r, err := Parse(b); err == nil { // the readings of values must not panic
			_ = r.Decode(nil).Len()
		}
		_, _, _ = TransferParams(b)
	})
}

func mustJSON(t *testing.T, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
