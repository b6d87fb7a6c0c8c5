package gateway

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/config"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/route"
)

// hangs answers nothing until the gateway has left.
func hangs(_ http.ResponseWriter, c call) { <-c.gone }

// babbles sends one event and then nothing until the gateway has left.
func babbles(w http.ResponseWriter, c call) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, event(0))
	_ = http.NewResponseController(w).Flush()
	<-c.gone
}

// A client that leaves ends both engines' requests, and both daemons are told.
func TestClientLeaves(t *testing.T) {
	for _, c := range []struct {
		stage   string
		prefill func(http.ResponseWriter, call)
		decode  func(http.ResponseWriter, call)
	}{
		{stagePrefill, hangs, nil},
		{stageDecode, nil, hangs},
		{stageStream, nil, babbles},
	} {
		t.Run(c.stage, func(t *testing.T) {
			s := setup{prefill: c.prefill}
			if c.decode != nil {
				s.decode = append(s.decode, c.decode)
			}
			b := newBench(t, s)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			got := make(chan error, 1)
			begun := make(chan struct{})
			go func() {
				resp, err := b.open(ctx, "/v1/completions", streamed)
				if err == nil {
					buf := make([]byte, 1)
					_, err = io.ReadFull(resp.Body, buf)
					close(begun)
					if err == nil {
						_, err = io.ReadAll(resp.Body)
					}
					_ = resp.Body.Close()
				}
				got <- err
			}()
			p := recv(t, b.p.calls, "prefill's request")
			last := p
			if c.stage != stagePrefill {
				last = recv(t, b.d[0].calls, "decode's request")
			}
			if c.stage == stageStream {
				recv(t, begun, "the first byte")
			}
			leave()
			recv(t, last.gone, "the end of the engine's request")
			idP, idD := recv(t, b.p.cancels, "prefill's cancel"), recv(t, b.d[0].cancels, "decode's cancel")
			if id := p.header.Get("X-Moai-Transfer"); idP != id || idD != id {
				t.Errorf("cancelled %s and %s, not %s", idP, idD, id)
			}
			if err := recv(t, got, "the client's error"); err == nil {
				t.Error("the client got a complete answer")
			}
			b.metric(`moai_router_cancelled_total{stage="` + c.stage + `"} 1`)
			b.metric(`moai_router_transfer_cancels_total{node="d0",result="ok"} 1`)
			if c.stage == stagePrefill && len(b.d[0].calls) != 0 {
				t.Error("decode was asked")
			}
		})
	}
}

func TestAnotherDecodeEngine(t *testing.T) {
	for _, c := range []struct {
		name  string
		first func(http.ResponseWriter, call)
		class string
	}{
		{"503", func(w http.ResponseWriter, _ call) { w.WriteHeader(503) }, "status"},
		{"the engine has failed", engineFails, "status"},
		{"the engine fails before the first event", func(w http.ResponseWriter, c call) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, ": ping\n\ndata: "+failedBody+"\n\n")
		}, "status"},
		{"cut before the answer", func(http.ResponseWriter, call) { panic(http.ErrAbortHandler) }, "cut"},
		{"cut before the first event", func(w http.ResponseWriter, _ call) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, "cut"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, setup{decode: []func(http.ResponseWriter, call){c.first, decodes(3)}})
			resp, got := b.post(streamed)
			if resp.StatusCode != 200 || !strings.HasPrefix(got, event(0)) || !strings.HasSuffix(got, "[DONE]\n\n") || resp.Header.Get("X-Moai-Route") != "pd; p=p/p0; d=d1/e" {
				t.Errorf("got %d %s %v", resp.StatusCode, got, resp.Header)
			}
			if d := recv(t, b.d[1].calls, "the second engine's request"); d.header.Get("X-Moai-Source") != "p/p0" || d.fields["kv_transfer_params"] == nil {
				t.Errorf("the second engine may read the KV, but got %s", d.body)
			}
			b.metric(`moai_router_upstream_errors_total{class="` + c.class + `",leg="decode",node="d0"} 1`)
		})
	}
}

// A transfer that decode's daemon refuses costs the transfer, not the request.
func TestDecodeRefusesTheTransfer(t *testing.T) {
	b := newBench(t, setup{decode: []func(http.ResponseWriter, call){func(w http.ResponseWriter, c call) {
		if c.header.Get("X-Moai-Source") != "" {
			w.WriteHeader(409)
			_, _ = io.WriteString(w, `{"error":{"code":"conflict","message":"claimed by another engine"}}`)
			return
		}
		decodes(1)(w, c)
	}}})
	resp, got := b.post(`{"prompt":"a"}`)
	if resp.StatusCode != 200 || resp.Header.Get("X-Moai-Route") != "decode-only; reason=transfer_refused; d=d0/e" {
		t.Errorf("got %d %s %v", resp.StatusCode, got, resp.Header)
	}
	recv(t, b.p.cancels, "prefill's cancel")
}

func TestDecodeRefusesConnections(t *testing.T) {
	b := newBench(t, setup{decode: []func(http.ResponseWriter, call){decodes(3), decodes(3)}})
	b.d[0].stop()
	resp, got := b.post(`{"prompt":"a"}`)
	if resp.StatusCode != 200 || resp.Header.Get("X-Moai-Route") != "pd; p=p/p0; d=d1/e" {
		t.Errorf("got %d %s %v", resp.StatusCode, got, resp.Header)
	}
}

func TestNoDecodeEngine(t *testing.T) {
	b := newBench(t, setup{})
	b.d[0].stop()
	resp, got := b.post(`{"prompt":"a"}`)
	if resp.StatusCode != 503 && resp.StatusCode != 502 || !strings.Contains(got, `"upstream_error"`) {
		t.Errorf("got %d %s", resp.StatusCode, got)
	}
	b.until("d0", route.Down)
	resp, got = b.post(`{"prompt":"a"}`)
	if resp.StatusCode != 503 || !strings.Contains(got, "no_decode_engine") {
		t.Errorf("got %d %s", resp.StatusCode, got)
	}
	if status, got := b.get("/health"); status != 503 || !strings.Contains(got, `"status":"down"`) {
		t.Errorf("health %d %s", status, got)
	}
}

// A refused request leaves no pages at prefill.
func TestDecodeRefusesTheRequest(t *testing.T) {
	b := newBench(t, setup{decode: []func(http.ResponseWriter, call){func(w http.ResponseWriter, _ call) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(422)
		_, _ = io.WriteString(w, `{"error":{"message":"no"}}`)
	}}})
	resp, got := b.post(`{"prompt":"a"}`)
	if resp.StatusCode != 422 || got != `{"error":{"message":"no"}}` {
		t.Errorf("got %d %s", resp.StatusCode, got)
	}
	recv(t, b.p.cancels, "prefill's cancel")
}

func TestStreamsThatBreak(t *testing.T) {
	begin := func(w http.ResponseWriter, more string) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, event(0)+more)
		_ = http.NewResponseController(w).Flush()
	}
	for _, c := range []struct {
		name, code string
		decode     func(http.ResponseWriter, call)
	}{
		{"cut inside an event", "decode_stream_cut", func(w http.ResponseWriter, _ call) {
			begin(w, `data: {"choices":[{"te`)
			panic(http.ErrAbortHandler)
		}},
		{"ends without [DONE]", "decode_stream_cut", func(w http.ResponseWriter, _ call) { begin(w, "") }},
		{"silent", "decode_stream_idle", babbles},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, setup{decode: []func(http.ResponseWriter, call){c.decode}, change: func(cfg *config.RouterConfig) {
				if c.code == "decode_stream_idle" {
					cfg.Timeouts.StreamIdle = config.Duration(50 * time.Millisecond)
				}
			}})
			resp, got := b.post(streamed)
			rest, ok := strings.CutPrefix(got, event(0))
			if resp.StatusCode != 200 || !ok || !strings.HasPrefix(rest, `data: {"error":{"code":"`+c.code+`"`) || !strings.HasSuffix(rest, "}}\n\n") ||
				strings.Contains(got, "[DONE]") || strings.Count(got, "\n\n") != 2 {
				t.Errorf("got %d %q", resp.StatusCode, got)
			}
			recv(t, b.p.cancels, "prefill's cancel")
			b.metric(`moai_router_upstream_errors_total{class="stream",leg="decode",node="d0"} 1`)
		})
	}
}

func TestTransferFailed(t *testing.T) {
	b := newBench(t, setup{decode: []func(http.ResponseWriter, call){func(w http.ResponseWriter, _ call) {
		w.Header().Set("X-Moai-Transfer-Verdict", "failed; code=not_offered")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}}})
	resp, _ := b.post(`{"prompt":"a"}`)
	if resp.Header.Get("X-Moai-Transfer-Verdict") != "failed; code=not_offered" {
		t.Errorf("headers %v", resp.Header)
	}
	b.metric(`moai_router_transfer_verdicts_total{code="not_offered",verdict="failed"} 1`)
	b.metric(`moai_router_requests_total{reason="transfer_failed",route="pd"} 1`)
}

// Pages at prefill are free at once when decode's daemon cannot say that nobody
// will come for them.
func TestTransferFailedForLackOfALink(t *testing.T) {
	b := newBench(t, setup{decode: []func(http.ResponseWriter, call){func(w http.ResponseWriter, _ call) {
		w.Header().Set("X-Moai-Transfer-Verdict", "failed; code=peer_gone")
		_, _ = io.WriteString(w, "{}")
	}}})
	resp, _ := b.post(`{"prompt":"a"}`)
	if id := recv(t, b.p.cancels, "prefill's cancel"); id != resp.Header.Get("X-Moai-Transfer") {
		t.Errorf("cancelled %s, the answer has %v", id, resp.Header)
	}
	if len(b.d[0].cancels) != 0 {
		t.Error("decode's request was cancelled")
	}
}

func TestWrongKeyIsRefused(t *testing.T) {
	other, _ := newKey(t)
	b := newBench(t, setup{change: func(c *config.RouterConfig) {
		c.Pairs[0].Prefill[0].PublicKey = config.KeyString(public(other))
	}})
	b.until("p", route.Down)
	_, text := b.get("/health")
	if !strings.Contains(text, config.KeyString(public(other))) || !strings.Contains(text, config.KeyString(public(b.p.key))) {
		t.Errorf("the reason does not show both keys: %s", text)
	}
	if resp, _ := b.post(`{"prompt":"a"}`); !strings.HasPrefix(resp.Header.Get("X-Moai-Route"), "decode-only; reason=prefill_down") || len(b.p.calls) != 0 {
		t.Errorf("route %q, %d calls", resp.Header.Get("X-Moai-Route"), len(b.p.calls))
	}
}

// A daemon that does not pin the router's key takes nothing from it.
func TestRouterIsNotTrusted(t *testing.T) {
	_, stranger := newKey(t)
	known, _ := newKey(t)
	d := newDaemon(t, "d", "e", public(known), decodes(1))
	f := run(t, &config.RouterConfig{Name: "front", Listen: "127.0.0.1:0", KeyFile: "/nonexistent",
		Pairs: []config.Pair{{Name: "main", Model: "m", Decode: []config.Engine{d.config()}}}}, stranger, patience)
	f.until("d", route.Down)
	if resp, got := f.post(`{"prompt":"a"}`); resp.StatusCode != 503 || len(d.calls) != 0 {
		t.Errorf("got %d %s", resp.StatusCode, got)
	}
}

func TestSlowClients(t *testing.T) {
	impatient := func(c *config.RouterConfig) { c.Timeouts.Client = config.Duration(100 * time.Millisecond) }
	t.Run("sends slowly", func(t *testing.T) {
		b := newBench(t, setup{change: impatient})
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
			t.Errorf("got %q, %v", answer, err)
		}
	})
	t.Run("reads nothing", func(t *testing.T) {
		big := "data: " + strings.Repeat("x", 1<<20) + "\n\n"
		b := newBench(t, setup{change: impatient, decode: []func(http.ResponseWriter, call){func(w http.ResponseWriter, c call) {
			w.Header().Set("Content-Type", "text/event-stream")
			for {
				if _, err := io.WriteString(w, big); err != nil {
					return
				}
			}
		}}})
		resp, err := b.open(t.Context(), "/v1/completions", streamed)
		if err != nil {
			t.Fatal(err)
		}
		d := recv(t, b.d[0].calls, "decode's request")
		recv(t, d.gone, "the end of decode's request")
		recv(t, b.p.cancels, "prefill's cancel")
		recv(t, b.d[0].cancels, "decode's cancel")
		_ = resp.Body.Close()
	})
}

func TestShutdown(t *testing.T) {
	t.Run("lets streams finish", func(t *testing.T) {
		finish := make(chan struct{})
		b := newBench(t, setup{decode: []func(http.ResponseWriter, call){func(w http.ResponseWriter, c call) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, event(0))
			_ = http.NewResponseController(w).Flush()
			<-finish
			_, _ = io.WriteString(w, "data: [DONE]\n\n")
		}}})
		resp, err := b.open(t.Context(), "/v1/completions", streamed)
		if err != nil {
			t.Fatal(err)
		}
		stopped := make(chan error, 1)
		go func() { stopped <- b.stop() }()
		for !b.g.stopping.Load() { // Run has noticed
			runtime.Gosched()
		}
		close(finish)
		if got := readAll(t, resp); got != event(0)+"data: [DONE]\n\n" {
			t.Errorf("got %q", got)
		}
		if err := recv(t, stopped, "the end of Run"); err != nil {
			t.Error(err)
		}
		if _, err := b.open(t.Context(), "/v1/completions", streamed); err == nil {
			t.Error("a request was taken after the end")
		}
	})
	t.Run("cuts streams off at last", func(t *testing.T) {
		b := newBench(t, setup{decode: []func(http.ResponseWriter, call){babbles}, change: func(c *config.RouterConfig) {
			c.Timeouts.Drain = config.Duration(10 * time.Millisecond)
		}})
		resp, err := b.open(t.Context(), "/v1/completions", streamed)
		if err != nil {
			t.Fatal(err)
		}
		stopped := make(chan error, 1)
		go func() { stopped <- b.stop() }()
		if got := readAll(t, resp); !strings.Contains(got, `"code":"router_stopped"`) || strings.Contains(got, "[DONE]") {
			t.Errorf("got %q", got)
		}
		if err := recv(t, stopped, "the end of Run"); err != nil {
			t.Error(err)
		}
		recv(t, b.p.cancels, "prefill's cancel")
	})
}
