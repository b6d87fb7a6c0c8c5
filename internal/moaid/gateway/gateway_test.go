package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/config"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/route"
)

const streamed = `{"seed":12345678901234567890123,"model":"m","prompt":"héllo \u00e9","stream":true,"stream_options":{"include_usage":true},"max_tokens":16}`

func TestPrefillThenDecode(t *testing.T) {
	next := make(chan struct{})
	b := newBench(t, setup{decode: []func(http.ResponseWriter, call){func(w http.ResponseWriter, _ call) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Moai-Transfer-Verdict", "ready")
		for i := range 3 {
			_, _ = io.WriteString(w, event(i))
			_ = http.NewResponseController(w).Flush()
			<-next
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}}})
	resp, err := b.open(t.Context(), "/v1/chat/completions", streamed)
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(resp.Body)
	for i := range 3 { // decode sends nothing more until this event was read
		got, err := in.ReadString('\n')
		if err != nil || got != strings.TrimSuffix(event(i), "\n") {
			t.Fatalf("event %d: %q, %v", i, got, err)
		}
		if _, err := in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		next <- struct{}{}
	}
	rest, err := io.ReadAll(in)
	if err != nil || string(rest) != "data: [DONE]\n\n" {
		t.Errorf("the end is %q, %v", rest, err)
	}
	_ = resp.Body.Close()

	p, d := recv(t, b.p.calls, "prefill's request"), recv(t, b.d[0].calls, "decode's request")
	id := resp.Header.Get("X-Moai-Transfer")
	if len(id) != 32 || resp.Header.Get("X-Moai-Route") != "pd; p=p/p0; d=d0/e" || resp.Header.Get("X-Request-Id") != id {
		t.Errorf("headers of the answer: %v", resp.Header)
	}
	wantP := `{"seed":12345678901234567890123,"model":"m","prompt":"héllo \u00e9","max_tokens":1,"stream":false,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"target_engine":"e","target_node":"d0","transfer_id":"` + id + `"}}`
	if p.body != wantP || p.path != "/v1/chat/completions" {
		t.Errorf("prefill got %s\n%s, want\n%s", p.path, p.body, wantP)
	}
	wantD := strings.TrimSuffix(streamed, "}") + `,"kv_transfer_params":` + paramsFor(id) + "}"
	if d.body != wantD {
		t.Errorf("decode got\n%s, want\n%s", d.body, wantD)
	}
	if d.header.Get("X-Moai-Transfer") != id || d.header.Get("X-Moai-Source") != "p/p0" || d.header.Get("Authorization") != "Bearer secret" ||
		p.header.Get("X-Moai-Source") != "" || d.header.Get("X-Request-Id") != id {
		t.Errorf("headers: prefill %v, decode %v", p.header, d.header)
	}
	b.metric(`moai_router_requests_total{reason="",route="pd"} 1`)
	b.metric(`moai_router_transfer_verdicts_total{code="",verdict="ready"} 1`)
	b.metric(`moai_router_itl_seconds_count 2`)
	b.metric(`moai_router_ttft_seconds_count{route="pd"} 1`)
	b.metric(`moai_router_outstanding{engine="e",node="d0"} 0`)

	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	lines := b.log.requests(t)
	if len(lines) != 1 {
		t.Fatalf("%d lines were logged for one request", len(lines))
	}
	for k, want := range map[string]any{
		"id": id, "route": "pd", "prefill": "p/p0", "decode": "d0/e", "status": 200.0, "events": 3.0, "model": "m", "verdict": "ready", "bytes_in": float64(len(streamed)),
	} {
		if lines[0][k] != want {
			t.Errorf("the log says %s=%v, not %v", k, lines[0][k], want)
		}
	}
	if log := b.log.b.String(); strings.Contains(log, "llo") || strings.Contains(log, "secret") {
		t.Errorf("the log holds the prompt or a secret: %s", log)
	}
}

func TestNotStreamed(t *testing.T) {
	b := newBench(t, setup{})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/v1/completions", strings.NewReader(`{"prompt":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Request-Id", "mine")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, resp); got != `{"choices":[{"text":"answer"}]}` || resp.Header.Get("X-Request-Id") != "mine" ||
		resp.Header.Get("X-Moai-Transfer-Verdict") != "ready" || resp.Header.Get("X-Moai-Hold-Ms") != "3" {
		t.Errorf("got %q, %v", got, resp.Header)
	}
	if d := recv(t, b.d[0].calls, "decode's request"); d.header.Get("X-Request-Id") != "mine" {
		t.Errorf("decode got %v", d.header)
	}
	if len(b.p.cancels)+len(b.d[0].cancels) != 0 {
		t.Error("a transfer that worked was cancelled")
	}
}

func TestDecodeOnly(t *testing.T) {
	answers := func(status int, body string) func(http.ResponseWriter, call) {
		return func(w http.ResponseWriter, _ call) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for _, c := range []struct {
		name, reason, body string
		prefill            func(http.ResponseWriter, call)
		state              *api.EngineSummary
		until              route.State
		cancelled          bool // prefill is told to forget the transfer
	}{
		{name: "500", reason: "prefill_status", prefill: answers(500, "{}"), cancelled: true},
		{name: "404 of the daemon", reason: "prefill_status", prefill: answers(404, "{}"), cancelled: true},
		{name: "no params", reason: "prefill_no_params", prefill: answers(200, `{"choices":[]}`), cancelled: true},
		{name: "no JSON", reason: "prefill_bad_answer", prefill: answers(200, "<html>"), cancelled: true},
		{name: "another id", reason: "prefill_bad_answer", prefill: answers(200, `{"kv_transfer_params":`+paramsFor("x")+"}"), cancelled: true},
		{name: "cut", reason: "prefill_cut", prefill: func(http.ResponseWriter, call) { panic(http.ErrAbortHandler) }, cancelled: true},
		{name: "not ready", reason: "prefill_not_ready", state: &api.EngineSummary{Reason: "loading"}, until: route.NotReady},
		{name: "draining", reason: "prefill_draining", state: &api.EngineSummary{Ready: true, Draining: true}, until: route.Draining},
		{name: "n", reason: "n", body: `{"model":"m","prompt":"a","n":2}`},
		{name: "prompt_logprobs", reason: "prompt_logprobs", body: `{"model":"m","prompt":"a","prompt_logprobs":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, setup{prefill: c.prefill})
			if c.state != nil {
				b.p.set(*c.state)
				b.until("p", c.until)
			}
			body := c.body
			if body == "" {
				body = `{"model":"m","kv_transfer_params":{"evil":1},"prompt":"a"}`
			}
			resp, got := b.post(body)
			if resp.StatusCode != 200 || !strings.Contains(got, "answer") || resp.Header.Get("X-Moai-Transfer") != "" {
				t.Errorf("got %d %q %v", resp.StatusCode, got, resp.Header)
			}
			if r := resp.Header.Get("X-Moai-Route"); r != "decode-only; reason="+c.reason+"; d=d0/e" {
				t.Errorf("route %q, want reason %s", r, c.reason)
			}
			d := recv(t, b.d[0].calls, "decode's request")
			if d.fields["kv_transfer_params"] != nil || d.header.Get("X-Moai-Transfer") != "" || d.header.Get("X-Moai-Source") != "" {
				t.Errorf("decode got params: %s %v", d.body, d.header)
			}
			b.metric(`moai_router_decode_only_total{reason="` + c.reason + `"} 1`)
			if c.cancelled {
				recv(t, b.p.cancels, "prefill's cancel")
			}
		})
	}
}

func TestPrefillTooLate(t *testing.T) {
	b := newBench(t, setup{
		prefill: func(_ http.ResponseWriter, c call) { <-c.gone },
		change:  func(c *config.RouterConfig) { c.Timeouts.Prefill = config.Duration(1e6) },
	})
	resp, _ := b.post(`{"prompt":"a"}`)
	if r := resp.Header.Get("X-Moai-Route"); !strings.Contains(r, "reason=prefill_timeout") {
		t.Errorf("route %q", r)
	}
}

func TestPrefillDownThenUp(t *testing.T) {
	b := newBench(t, setup{})
	b.p.stop()
	b.until("p", route.Down)
	resp, _ := b.post(`{"prompt":"a"}`)
	if r := resp.Header.Get("X-Moai-Route"); r != "decode-only; reason=prefill_down; d=d0/e" {
		t.Errorf("route %q", r)
	}
	status, text := b.get("/health")
	var h Health
	if err := json.Unmarshal([]byte(text), &h); err != nil || status != 200 || h.Status != "degraded" ||
		h.Models[0].Route != "decode-only" || h.Models[0].Reason != "prefill_down" || h.Models[0].Pairs[0].Prefill[0].Reason == "" {
		t.Errorf("health %d %s: %v", status, text, err)
	}
	b.p.start()
	b.until("p", route.Ready)
	if resp, _ := b.post(`{"prompt":"a"}`); !strings.HasPrefix(resp.Header.Get("X-Moai-Route"), "pd;") {
		t.Errorf("route %q after recovery", resp.Header.Get("X-Moai-Route"))
	}
	if status, text := b.get("/health"); status != 200 || !strings.Contains(text, `"status":"ok"`) {
		t.Errorf("health %d %s", status, text)
	}
}

// Requests do not go through prefill while no KV could come from there, and do
// again as soon as decode's daemon has its session back.
func TestLinkDownThenUp(t *testing.T) {
	b := newBench(t, setup{})
	health := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; {
			_, text := b.get("/health")
			if strings.Contains(text, want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("health is %s, not %s", text, want)
			}
		}
	}
	b.d[0].set(api.EngineSummary{Ready: true, Peers: []string{}})
	health(`"status":"degraded"`)
	health(`"route":"decode-only","reason":"link_down"`)
	resp, _ := b.post(`{"prompt":"a"}`)
	if r := resp.Header.Get("X-Moai-Route"); resp.StatusCode != 200 || r != "decode-only; reason=link_down; d=d0/e" || len(b.p.calls) != 0 {
		t.Errorf("got %d, route %q, %d calls of prefill", resp.StatusCode, r, len(b.p.calls))
	}
	b.metric(`moai_router_decode_only_total{reason="link_down"} 1`)
	b.d[0].set(api.EngineSummary{Ready: true, Peers: []string{"p"}})
	health(`"status":"ok"`)
	if resp, _ := b.post(`{"prompt":"a"}`); !strings.HasPrefix(resp.Header.Get("X-Moai-Route"), "pd;") {
		t.Errorf("route %q after recovery", resp.Header.Get("X-Moai-Route"))
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	refuses := func(param, code string) func(http.ResponseWriter, call) {
		return func(w http.ResponseWriter, c call) {
			w.WriteHeader(400)
			_, _ = fmt.Fprintf(w, `{"error":{"message":"too long with max_tokens %s","type":"invalid_request_error","param":"%s","code":%s}}`, c.fields["max_tokens"], param, code)
		}
	}
	// Prefill blames the max_tokens of the router, decode what the client wrote.
	b := newBench(t, setup{prefill: refuses("max_tokens", "400"), decode: []func(http.ResponseWriter, call){refuses("prompt", `"context_length_exceeded"`)}})
	for _, c := range []struct {
		body   string
		status int
		code   string
	}{
		{`{"model":"other","prompt":"a"}`, 404, "model_not_found"},
		{`{"model":"m","prompt":["a","b"]}`, 400, "multiple_prompts"},
		{`{"model":"m",`, 400, "invalid_json"},
		{``, 400, "invalid_json"},
		{`{"model":"m","prompt":"a","max_tokens":0}`, 400, "invalid_max_tokens"},
		{`{"model":"m","prompt":"a","max_completion_tokens":-3}`, 400, "invalid_max_completion_tokens"},
		{`{"model":"m","prompt":"a","max_tokens":7}`, 400, "context_length_exceeded"},
	} {
		resp, got := b.post(c.body)
		var e struct {
			Error struct{ Message, Type, Code string }
		}
		if err := json.Unmarshal([]byte(got), &e); err != nil || resp.StatusCode != c.status || e.Error.Code != c.code || e.Error.Message == "" || e.Error.Type != kindRequest {
			t.Errorf("%s: %d %s", c.body, resp.StatusCode, got)
		}
		if resp.Header.Get("X-Request-Id") == "" {
			t.Errorf("%s: no X-Request-Id", c.body)
		}
	}
	resp, got := b.post(`{"model":"m","prompt":"a","max_tokens":7}`)
	if !strings.Contains(got, "max_tokens 7") || !strings.Contains(got, `"param":"prompt"`) || resp.Header.Get("X-Moai-Route") != "decode-only; reason=prefill_refused; d=d0/e" {
		t.Errorf("got %s %v", got, resp.Header)
	}
	if n := len(b.d[0].calls); n != 2 {
		t.Errorf("decode was asked %d times", n)
	}
	if _, got := b.post(`{"model":"m",}`); !strings.Contains(got, "the body is no valid JSON: no string begins at byte 13") {
		t.Errorf("got %s", got)
	}
	if status, got := b.get("/v1/models"); status != 200 || !strings.Contains(got, `"id":"m"`) {
		t.Errorf("models: %d %s", status, got)
	}
	for path, want := range map[string]int{"/v1/completions": 405, "/v1/chat/completions": 405, "/v1/models/m": 200, "/v1/models/x/y": 404, "/healthz": 200, "/readyz": 200, "/x": 404} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got := readAll(t, resp)
		if resp.StatusCode != want || (want == 405) != (resp.Header.Get("Allow") == "POST") || !strings.HasPrefix(got, "{") {
			t.Errorf("GET %s: %d %s %v", path, resp.StatusCode, got, resp.Header)
		}
	}
}

func TestErrorsHaveOpenAIsShape(t *testing.T) {
	for answer, want := range map[string]string{
		`{"error":{"message":"a","code":400,"param":"x"}}`:          `{"error":{"code":null,"message":"a","param":"x"}}`,
		`{"object":"error","message":"a","type":"b","code":404}`:    `{"error":{"code":null,"message":"a","type":"b"}}`,
		`{"error":{"message":"a","code":"c","big":12345678901234}}`: `{"error":{"message":"a","code":"c","big":12345678901234}}`,
		`{"error":{"message":"a","code":null}}`:                     `{"error":{"message":"a","code":null}}`,
		`{"error":{"message":"no"}}`:                                `{"error":{"message":"no"}}`,
		`{"error":"a"}`:                                             `{"error":"a"}`,
		`<html>`:                                                    `<html>`,
		`{"detail":"Not Found"}`:                                    `{"detail":"Not Found"}`,
	} {
		if got := string(openAIError([]byte(answer))); got != want {
			t.Errorf("%s became %s, not %s", answer, got, want)
		}
	}
}

func TestBodyTooLong(t *testing.T) {
	b := newBench(t, setup{})
	refused := func(sent func(net.Conn)) {
		t.Helper()
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		done := make(chan struct{})
		go func() { defer close(done); sent(c) }()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if got, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 413 || !strings.Contains(string(got), "body_too_large") {
			t.Errorf("got %d %s %v", resp.StatusCode, got, err)
		}
		_ = c.Close()
		<-done
	}
	// Its length is enough, nothing of it has to come.
	refused(func(c net.Conn) {
		_, _ = fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", maxBody+1)
	})
	// One that never ends is read no further than the limit, but for what is on its way.
	var read int64
	refused(func(c net.Conn) {
		_, _ = io.WriteString(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
		chunk := fmt.Appendf(nil, "%x\r\n%s\r\n", 1<<20, strings.Repeat(" ", 1<<20))
		for {
			n, err := c.Write(chunk)
			if read += int64(n); err != nil {
				return
			}
		}
	})
	if read > maxBody+32<<20 {
		t.Errorf("%d bytes were taken", read)
	}
}

func TestManyStreams(t *testing.T) {
	b := newBench(t, setup{decode: []func(http.ResponseWriter, call){decodes(20), decodes(20)}})
	want := ""
	for i := range 20 {
		want += event(i)
	}
	want += "data: [DONE]\n\n"
	results := make(chan string, 200)
	for range cap(results) {
		go func() {
			resp, err := b.open(context.Background(), "/v1/completions", streamed)
			if err != nil {
				results <- err.Error()
				return
			}
			got, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			switch {
			case err != nil:
				results <- err.Error()
			case string(got) != want || !strings.HasPrefix(resp.Header.Get("X-Moai-Route"), "pd;"):
				results <- fmt.Sprintf("%s, %d bytes", resp.Header.Get("X-Moai-Route"), len(got))
			default:
				results <- ""
			}
		}()
	}
	for range cap(results) {
		if r := recv(t, results, "a stream"); r != "" {
			t.Error(r)
		}
	}
	if a, c := len(b.d[0].calls), len(b.d[1].calls); a+c != 200 || a < 50 || c < 50 {
		t.Errorf("the load was split %d to %d", a, c)
	}
}
