package gateway

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// While the trial's answer goes on, others are served as ever.
func TestTrialEndsWithTheAnswersBeginning(t *testing.T) {
	var broken atomic.Bool
	finish := make(chan struct{})
	b := newBench(t, setup{decode: []func(http.ResponseWriter, call){func(w http.ResponseWriter, c call) {
		if broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, event(0))
		_ = http.NewResponseController(w).Flush()
		<-finish
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}}})
	tripped := func() bool {
		f := b.g.fleet
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, e := range f.engines {
			if e.Node == "d0" {
				return e.Tripped(time.Now())
			}
		}
		return false
	}
	broken.Store(true)
	for range 3 {
		if resp, got := b.post(streamed); resp.StatusCode != http.StatusInternalServerError {
			t.Fatalf("%d %s", resp.StatusCode, got)
		}
	}
	if !tripped() {
		t.Fatal("three failures do not trip")
	}
	broken.Store(false)
	var open []*http.Response
	for range 3 { // the first is the trial
		resp, err := b.open(t.Context(), "/v1/completions", streamed)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, resp)
		if got := resp.Header.Get("X-Moai-Route"); got != "pd; p=p/p0; d=d0/e" {
			t.Errorf("route %q", got)
		}
		if tripped() {
			t.Error("an engine that answers is kept away from")
		}
	}
	close(finish)
	for _, resp := range open {
		_ = readAll(t, resp)
	}
}
