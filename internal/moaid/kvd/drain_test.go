package kvd

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
)

// draining is a node with a running request, whose answer goes on until finish is
// closed, and a gateway.
func draining(t *testing.T, drain time.Duration) (n *node, hc *http.Client, base string, running *http.Response, finish chan struct{}) {
	t.Helper()
	n = newNode(t, "d", func(o *Options) { o.Drain = drain })
	f := n.engine("decode", "decode", testFingerprint())
	hc, key := gatewayClient(t, n)
	must[*api.Trust](t, "trust")(n.c.PutTrust(t.Context(), api.Trust{Name: "router", PublicKey: key, Role: api.RoleGateway}))
	finish = make(chan struct{})
	f.http.answers(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "one ")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-finish:
			_, _ = io.WriteString(w, "two")
		case <-r.Context().Done():
		}
	})
	base = "https://" + n.addr
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/engines/decode/x", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if running, err = hc.Do(req); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = running.Body.Close() })
	return n, hc, base, running, finish
}

// What an engine answers is finished, what is new is sent elsewhere.
func TestStopFinishesRunningRequests(t *testing.T) {
	n, hc, base, running, finish := draining(t, patience)
	ended := make(chan struct{})
	go func() { n.stop(); close(ended) }()
	eventually(t, "gateways are told", func() bool {
		_, _, body, err := ask(t, hc, "GET", base+"/engines", nil)
		return err == nil && strings.Contains(body, `"ready":false`) && strings.Contains(body, `"stopping":true`)
	})
	if code, h, body, err := ask(t, hc, "POST", base+"/engines/decode/x", nil); err != nil || code != http.StatusServiceUnavailable || !strings.Contains(body, `"stopping"`) || h.Get("Retry-After") == "" {
		t.Errorf("a new request: %d %s %v %v", code, body, h, err)
	}
	if st := must[*api.EngineStatus](t, "engine")(n.c.GetEngine(t.Context(), "decode", 0)); !st.Ready {
		t.Errorf("the engine itself is not ready: %s", st.Reason)
	}
	select {
	case <-ended:
		t.Fatal("the daemon ended before the answer")
	default:
	}
	close(finish)
	if b, err := io.ReadAll(running.Body); err != nil || string(b) != "one two" {
		t.Errorf("%q %v", b, err)
	}
	<-ended
}

func TestStopDoesNotWaitForEver(t *testing.T) {
	n, _, _, running, _ := draining(t, 20*time.Millisecond)
	n.stop()
	if b, err := io.ReadAll(running.Body); err == nil {
		t.Errorf("what was cut off looks complete: %q", b)
	}
}

// Held requests have cost the engine nothing: they go elsewhere at once.
func TestStopSendsHeldRequestsAway(t *testing.T) {
	_, d, _, _ := twoNodes(t, api.EncryptionAEAD, func(o *Options) { shortGrace(o); o.Drain = patience })
	id := newID()
	type answer struct {
		resp *http.Response
		body string
	}
	got := make(chan answer, 1)
	go func() {
		resp, body := get(t.Context(), t, d, "decode", "/x", held(id))
		got <- answer{resp, body}
	}()
	d.waitState(id, "claimed")
	d.stop()
	if a := <-got; a.resp == nil || a.resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(a.body, `"stopping"`) {
		t.Errorf("%v %s", a.resp, a.body)
	}
}
