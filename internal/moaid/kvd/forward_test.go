package kvd

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/intake"
)

// pinnedGateway is a node with an engine and a gateway that it trusts.
func pinnedGateway(t *testing.T) (n *node, f *fake, hc *http.Client, base string) {
	t.Helper()
	n = newNode(t, "d", nil)
	f = n.engine("decode", "decode", testFingerprint())
	hc, key := gatewayClient(t, n)
	must[*api.Trust](t, "trust")(n.c.PutTrust(t.Context(), api.Trust{Name: "router", PublicKey: key, Role: api.RoleGateway}))
	return n, f, hc, "https://" + n.addr
}

func TestPathsReachTheEngineAsWritten(t *testing.T) {
	_, _, hc, base := pinnedGateway(t)
	for path, want := range map[string]string{
		"/engines/decode/v1/a%3Fb%2Fc?x=1": "POST /v1/a%3Fb%2Fc?x=1",
		"/engines/decode/a%23b%20c":        "POST /a%23b%20c",
		"/engines/decode/%2e%2e/%2e%2e/x":  "POST /%2e%2e/%2e%2e/x",
		"/engines/decode/?q=%2F":           "POST /?q=%2F",
	} {
		if code, _, body, err := ask(t, hc, "POST", base+path, nil); err != nil || code != 200 || body != want {
			t.Errorf("%s: %d %q %v, want %q", path, code, body, err, want)
		}
	}
}

func TestGatewaysReachEnginesOnly(t *testing.T) {
	_, f, hc, base := pinnedGateway(t)
	for _, path := range []string{
		"/v1/status", "/v1/trust/x", "/metrics", "/engines/other/x", "/engines/..%2f..%2fv1/status", "/engines/%2e%2e/v1/status",
		"/engines/decode%2f..%2f../v1/status", "/v1/engines/decode/http/x", "/engines/decode%00/x", "/engines/%2E/x",
	} {
		if code, _, body, err := ask(t, hc, "PUT", base+path, nil); err != nil || code/100 == 2 {
			t.Errorf("%s: %d %q %v", path, code, body, err)
		}
	}
	if n := f.http.requests(); n != 0 {
		t.Errorf("%d requests reached the engine", n)
	}
}

func TestHeadersOfTheHop(t *testing.T) {
	_, f, hc, base := pinnedGateway(t)
	f.http.answers(func(w http.ResponseWriter, r *http.Request) {
		for _, k := range []string{"X-Secret", "Te", "Upgrade", "Proxy-Authorization", "Keep-Alive", "Trailer"} {
			if r.Header.Get(k) != "" {
				t.Errorf("%s reached the engine", k)
			}
		}
		if r.Host != "engine" || r.Header.Get("X-Kept") != "1" {
			t.Errorf("host %q, header %v", r.Host, r.Header)
		}
		w.Header().Set(headerVerdict, "ready")
		w.Header().Set(headerHold, "7")
		w.Header().Set("X-Engine", "e")
	})
	_, h, _, err := ask(t, hc, "POST", base+"/engines/decode/x", http.Header{
		"Connection": {"X-Secret, keep-alive"}, "X-Secret": {"1"}, "Te": {"trailers"}, "Upgrade": {"h2c"}, "Proxy-Authorization": {"x"}, "Keep-Alive": {"1"}, "X-Kept": {"1"}})
	if err != nil || h.Get("X-Engine") != "e" || h.Get(headerVerdict) != "" || h.Get(headerHold) != "" {
		t.Errorf("%v %v", h, err)
	}
}

func TestMemoryOfBodiesIsBounded(t *testing.T) {
	n, f, hc, base := pinnedGateway(t)
	release, arrived := make(chan struct{}), make(chan struct{}, 100)
	f.http.answers(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		<-release
	})
	const each = 6 << 20
	post := func(ctx context.Context) (int, string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/engines/decode/x", bytes.NewReader(make([]byte, each)))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		resp, err := hc.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	n.d.bodies = intake.NewBudget(2 * each) // a gigabyte is too much for a test
	done := make(chan int, 1)
	go func() { code, _ := post(t.Context()); done <- code }()
	<-arrived
	if code, body := post(t.Context()); code != http.StatusServiceUnavailable || !strings.Contains(body, "too_many") {
		t.Errorf("%d %s", code, body)
	}
	close(release)
	if code := <-done; code != http.StatusOK {
		t.Error(code)
	}
	if code, _ := post(t.Context()); code != http.StatusOK {
		t.Error("memory was not given back")
	}
}

// A client that takes nothing of its answer, as one whose host has gone, must not
// hold the engine for ever.
func TestClientThatDoesNotRead(t *testing.T) {
	n, f, hc, base := pinnedGateway(t)
	n.d.patience = 50 * time.Millisecond
	ended := make(chan struct{})
	f.http.answers(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		buf := make([]byte, 1<<20)
		for r.Context().Err() == nil {
			if _, err := w.Write(buf); err != nil {
				return
			}
		}
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/engines/decode/x", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := hc.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the engine still answers")
	}
}
