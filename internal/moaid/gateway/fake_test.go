package gateway

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/config"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/upstream"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
)

// patience bounds every wait for a condition in these tests.
const patience = 20 * time.Second

func newKey(t *testing.T) (ed25519.PrivateKey, tls.Certificate) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := transport.Identity{Key: key}.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	return key, cert
}

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

// call is a request that reached an engine of a fake daemon.
type call struct {
	path   string
	header http.Header
	body   string
	fields map[string]json.RawMessage
	gone   <-chan struct{} // closed when the gateway has left
}

// daemon is a strict fake KV daemon with one engine: it accepts one gateway's
// key and knows only what docs/protocols/peer-wire.md lists.
type daemon struct {
	t       *testing.T
	name    string // of the node
	engine  string
	key     ed25519.PrivateKey
	tls     *tls.Config
	addr    string
	srv     *http.Server
	calls   chan call
	cancels chan string

	mu     sync.Mutex
	state  api.EngineSummary
	script func(w http.ResponseWriter, c call)
}

// hidden hides the *tls.Conn from http.Server, which would close connections
// with a protocol that it does not know.
type hidden struct{ net.Listener }
type hiddenConn struct{ net.Conn }

func (h hidden) Accept() (net.Conn, error) {
	c, err := h.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return hiddenConn{c}, nil
}

func newDaemon(t *testing.T, name, engine string, gateway ed25519.PublicKey, script func(w http.ResponseWriter, c call)) *daemon {
	t.Helper()
	key, cert := newKey(t)
	d := &daemon{
		t: t, name: name, engine: engine, key: key, calls: make(chan call, 1000), cancels: make(chan string, 1000),
		state: api.EngineSummary{Name: engine, Ready: true}, script: script, addr: "127.0.0.1:0",
	}
	d.tls = &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, NextProtos: []string{upstream.ALPN},
		ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			if k, ok := cs.PeerCertificates[0].PublicKey.(ed25519.PublicKey); !ok || !k.Equal(gateway) {
				return errors.New("not the gateway's key")
			}
			return nil
		},
	}
	d.start()
	t.Cleanup(d.stop)
	return d
}

func (d *daemon) start() {
	d.t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	d.addr = l.Addr().String()
	d.srv = &http.Server{Handler: d.handler(), ReadHeaderTimeout: patience}
	srv := d.srv
	go func() { _ = srv.Serve(hidden{tls.NewListener(l, d.tls)}) }()
}

func (d *daemon) stop() { _ = d.srv.Close() }

func (d *daemon) set(s api.EngineSummary) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.Name = d.engine
	d.state = s
}

func (d *daemon) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /engines", func(w http.ResponseWriter, _ *http.Request) {
		d.mu.Lock()
		defer d.mu.Unlock()
		_ = json.NewEncoder(w).Encode([]api.EngineSummary{d.state})
	})
	mux.HandleFunc("DELETE /transfers/{id}", func(w http.ResponseWriter, r *http.Request) {
		d.cancels <- r.PathValue("id")
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /engines/{name}/{path...}", func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		c := call{path: "/" + r.PathValue("path"), header: r.Header, body: string(b), gone: r.Context().Done()}
		if err := json.Unmarshal(b, &c.fields); err != nil || r.PathValue("name") != d.engine || r.ContentLength != int64(len(b)) {
			d.t.Errorf("%s got a bad request for %s: %v: %.200q", d.name, r.URL.Path, err, b)
		}
		d.calls <- c
		d.script(w, c)
	})
	return mux
}

func (d *daemon) config() config.Engine {
	return config.Engine{Node: d.name, Engine: d.engine, Addresses: []string{d.addr}, PublicKey: config.KeyString(public(d.key))}
}

// prefills answers as a prefill engine does, and checks what it is asked.
func prefills(t *testing.T) func(http.ResponseWriter, call) {
	return func(w http.ResponseWriter, c call) {
		var p struct {
			DRD  bool   `json:"do_remote_decode"`
			ID   string `json:"transfer_id"`
			Node string `json:"target_node"`
		}
		if err := json.Unmarshal(c.fields["kv_transfer_params"], &p); err != nil || !p.DRD || len(p.ID) != 32 || p.Node == "" {
			t.Errorf("prefill got the params %s: %v", c.fields["kv_transfer_params"], err)
		}
		if string(c.fields["max_tokens"]) != "1" || string(c.fields["stream"]) != "false" || c.fields["stream_options"] != nil {
			t.Errorf("prefill got %s", c.body)
		}
		_, _ = fmt.Fprintf(w, `{"id":"cmpl","choices":[{"text":"x"}],"kv_transfer_params":%s}`, paramsFor(p.ID))
	}
}

// paramsFor is what prefill answers, with a number that no float64 holds.
func paramsFor(id string) string {
	return `{"do_remote_prefill":true, "transfer_id":"` + id + `","source_node":"p","big":12345678901234567890}`
}

// event is one event of a completion.
func event(i int) string { return fmt.Sprintf("data: {\"choices\":[{\"text\":\"%d\"}]}\n\n", i) }

// decodes streams n events, or answers at once if no stream was asked for.
func decodes(n int) func(http.ResponseWriter, call) {
	return func(w http.ResponseWriter, c call) {
		if c.header.Get("X-Moai-Transfer") != "" {
			w.Header().Set("X-Moai-Transfer-Verdict", "ready")
			w.Header().Set("X-Moai-Hold-Ms", "3")
		}
		if string(c.fields["stream"]) != "true" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"choices":[{"text":"answer"}]}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for i := range n {
			_, _ = io.WriteString(w, event(i))
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}
}
