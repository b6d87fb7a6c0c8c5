package conformance

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// RunGateway checks what a target with engines and a gateway's key answers to
// HTTP. Its engines are registered, and nothing listens on their HTTP sockets.
func RunGateway(t *testing.T, target Target) {
	g := &target
	tr := &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
		return g.tls(t, g.Gateway, wire.ALPNGateway) //nolint:contextcheck // the test's own bounds it
	}}
	t.Cleanup(tr.CloseIdleConnections)
	want := func(status int, method, path string) []byte {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "https://"+g.Addr+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != status {
			t.Errorf("%s %s: %s, want %d: %s %v", method, path, resp.Status, status, b, err)
		}
		return b
	}
	want(http.StatusOK, http.MethodGet, "/health")
	var list []api.EngineSummary
	if err := json.Unmarshal(want(http.StatusOK, http.MethodGet, "/engines"), &list); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, e := range list {
		seen[e.Name] = true
		if e.Ready || e.Reason == "" || e.Draining || e.Stats != nil {
			t.Errorf("an engine that is not connected: %+v", e)
		}
	}
	if len(list) != 2 || !seen[g.Engines.Prefill] || !seen[g.Engines.Decode] {
		t.Errorf("engines %+v", list)
	}
	want(http.StatusNotFound, http.MethodGet, "/engines/nobody/v1/models")
	want(http.StatusBadGateway, http.MethodGet, "/engines/"+g.Engines.Decode+"/v1/models")
	id := newID(t).String()
	for range 2 {
		want(http.StatusNoContent, http.MethodDelete, "/transfers/"+id)
	}
}
