package gateway

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

const failedBody = `{"error":{"code":"engine_failed","message":"the engine has failed; send the request again","param":null,"type":"server_error"}}`

// engineFails is what an engine says that ends.
func engineFails(w http.ResponseWriter, _ call) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = io.WriteString(w, failedBody)
}

// What else is a 500 may be the request's own doing, and is passed on.
func TestOtherFailuresOfAnEngineArePassedOn(t *testing.T) {
	b := newBench(t, setup{decode: []func(http.ResponseWriter, call){func(w http.ResponseWriter, _ call) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"error":{"code":"request_failed","message":"no","type":"server_error","param":null}}`)
	}, decodes(3)}})
	resp, got := b.post(streamed)
	if resp.StatusCode != http.StatusInternalServerError || !strings.Contains(got, `"request_failed"`) || len(b.d[1].calls) != 0 {
		t.Errorf("got %d %s", resp.StatusCode, got)
	}
}

// The only engine that ended is waited for, as one whose process was killed.
func TestEngineThatFailedIsWaitedFor(t *testing.T) {
	var asked atomic.Int32
	b := newBench(t, setup{wait: patience, decode: []func(http.ResponseWriter, call){func(w http.ResponseWriter, c call) {
		if asked.Add(1) == 1 {
			engineFails(w, c)
			return
		}
		decodes(3)(w, c)
	}}})
	resp, got := b.post(streamed)
	if resp.StatusCode != http.StatusOK || !strings.HasSuffix(got, "[DONE]\n\n") || resp.Header.Get("X-Moai-Route") != "pd; p=p/p0; d=d0/e" {
		t.Errorf("got %d %s %v", resp.StatusCode, got, resp.Header)
	}
	b = newBench(t, setup{decode: []func(http.ResponseWriter, call){engineFails}})
	if resp, got := b.post(streamed); resp.StatusCode != http.StatusBadGateway || !strings.Contains(got, codeDecodeFailed) || !strings.Contains(got, "the engine has failed") {
		t.Errorf("got %d %s", resp.StatusCode, got)
	}
}

// An engine's own error ends a stream: nothing comes after it, whatever the engine says.
func TestErrorsInStreams(t *testing.T) {
	for _, more := range []string{"", "data: [DONE]\n\n", "data: {\"usage\":{}}\n\ndata: [DONE]\n\n"} {
		want := event(0) + "data: " + failedBody + "\n\n"
		b := newBench(t, setup{decode: []func(http.ResponseWriter, call){func(w http.ResponseWriter, _ call) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, want+more)
		}}})
		if resp, got := b.post(streamed); resp.StatusCode != http.StatusOK || got != want {
			t.Errorf("got %d %q", resp.StatusCode, got)
		}
		recv(t, b.p.cancels, "prefill's cancel")
		b.metric(`moai_router_upstream_errors_total{class="stream",leg="decode",node="d0"} 1`)
	}
}
