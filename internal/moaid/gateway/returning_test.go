package gateway

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/route"
)

// A request that finds decode's daemon restarting is served when it is back.
func TestDecodeDaemonRestarts(t *testing.T) {
	b := newBench(t, setup{wait: patience})
	b.d[0].stop()
	b.until("d0", route.Down)
	got := make(chan *http.Response, 1)
	go func() {
		resp, err := b.open(context.Background(), "/v1/completions", streamed)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		if err != nil {
			t.Error(err)
		}
		got <- resp
	}()
	for b.inFlight() == 0 {
		time.Sleep(time.Millisecond)
	}
	b.d[0].start()
	if resp := recv(t, got, "the answer"); resp.StatusCode != 200 || resp.Header.Get("X-Moai-Route") != "pd; p=p/p0; d=d0/e" {
		t.Errorf("got %d %v", resp.StatusCode, resp.Header)
	}
	b.metric(`moai_router_decode_waits_total{result="resumed"} 1`)
}

// An engine that is restarting refuses while its daemon still thinks that it is
// ready. The next attempt has an id of its own, since the first was cancelled.
func TestDecodeEngineRestarts(t *testing.T) {
	var asked atomic.Int32
	b := newBench(t, setup{wait: patience, decode: []func(http.ResponseWriter, call){func(w http.ResponseWriter, c call) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, `{"error":{"code":"engine_unreachable","message":"no such socket"}}`)
			return
		}
		decodes(3)(w, c)
	}}})
	resp, got := b.post(streamed)
	if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("X-Moai-Route"), "pd;") || !strings.HasSuffix(got, "[DONE]\n\n") {
		t.Errorf("got %d %s %v", resp.StatusCode, got, resp.Header)
	}
	first, second := recv(t, b.d[0].calls, "the first attempt"), recv(t, b.d[0].calls, "the second attempt")
	was, is := first.header.Get("X-Moai-Transfer"), second.header.Get("X-Moai-Transfer")
	if was == is || is != resp.Header.Get("X-Moai-Transfer") {
		t.Errorf("the ids are %s, %s, and %v", was, is, resp.Header)
	}
	if id := recv(t, b.p.cancels, "prefill's cancel"); id != was {
		t.Errorf("%s was cancelled, not %s", id, was)
	}
	if n := len(b.p.calls); n != 2 {
		t.Errorf("prefill was asked %d times", n)
	}
}

// Waiting ends when the client leaves, and when decode is drained; what was never
// there is not waited for.
func TestNobodyWaitsInVain(t *testing.T) {
	t.Run("the client leaves", func(t *testing.T) {
		b := newBench(t, setup{wait: time.Hour})
		b.d[0].stop()
		b.until("d0", route.Down)
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			for b.inFlight() == 0 && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			leave()
		}()
		if resp, err := b.open(ctx, "/v1/completions", streamed); err == nil {
			_ = resp.Body.Close()
			t.Errorf("got %d", resp.StatusCode)
		}
		b.metric(`moai_router_decode_waits_total{result="client_left"} 1`)
	})
	t.Run("drained", func(t *testing.T) {
		b := newBench(t, setup{wait: time.Hour})
		b.d[0].set(api.EngineSummary{Ready: true, Draining: true})
		b.until("d0", route.Draining)
		if resp, got := b.post(streamed); resp.StatusCode != 503 {
			t.Errorf("got %d %s", resp.StatusCode, got)
		}
	})
	t.Run("not in time", func(t *testing.T) {
		b := newBench(t, setup{wait: 50 * time.Millisecond})
		b.d[0].stop()
		b.until("d0", route.Down)
		if resp, got := b.post(streamed); resp.StatusCode != 503 || !strings.Contains(got, "no_decode_engine") {
			t.Errorf("got %d %s", resp.StatusCode, got)
		}
		b.metric(`moai_router_decode_waits_total{result="gave_up"} 1`)
	})
}

// inFlight is the number of completion requests that are being served.
func (f *front) inFlight() int {
	_, text := f.get("/metrics")
	if strings.Contains(text, "\nmoai_router_requests_in_flight 1") {
		return 1
	}
	return 0
}
