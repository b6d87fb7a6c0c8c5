package gateway

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/route"
)

// A daemon that finishes what it has before it ends is waited for, longer than one
// that is just away.
func TestDecodeDaemonFinishesItsRequests(t *testing.T) {
	const wait = 300 * time.Millisecond
	b := newBench(t, setup{wait: wait})
	b.d[0].set(api.EngineSummary{Stopping: true, Reason: "the KV daemon is stopping"})
	b.until("d0", route.NotReady)
	got := make(chan int, 1)
	go func() {
		resp, err := b.open(t.Context(), "/v1/completions", streamed)
		if err != nil {
			got <- 0
			return
		}
		_, _ = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		got <- resp.StatusCode
	}()
	select {
	case code := <-got:
		t.Fatalf("not waited for: %d", code)
	case <-time.After(wait * 3 / 2):
	}
	b.d[0].set(api.EngineSummary{Ready: true})
	if code := recv(t, got, "the answer"); code != http.StatusOK {
		t.Errorf("got %d", code)
	}
	b.d[0].set(api.EngineSummary{Stopping: true})
	b.until("d0", route.NotReady)
	begun := time.Now()
	if resp, got := b.post(streamed); resp.StatusCode != http.StatusServiceUnavailable || time.Since(begun) < drainFactor*wait {
		t.Errorf("got %d %s after %v", resp.StatusCode, got, time.Since(begun))
	}
}
