package gateway

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/config"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/route"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/upstream"
)

// patience bounds every wait for a condition in these tests.
const patience = 20 * time.Second

func newKey(t *testing.T) (ed25519.PrivateKey, tls.Certificate) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := upstream.Certificate(key)
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

// logBuffer keeps what is logged.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// requests gives the lines about requests.
func (l *logBuffer) requests(t *testing.T) (out []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m["msg"] == "request" {
			out = append(out, m)
		}
	}
	return out
}

// front is a running gateway.
type front struct {
	t    *testing.T
	g    *Gateway
	url  string
	log  *logBuffer
	stop func() error // ends Run and gives its result
}

// bench is one prefill and any number of decode daemons behind a gateway.
type bench struct {
	*front
	p *daemon
	d []*daemon
}

type setup struct {
	prefill func(http.ResponseWriter, call)
	decode  []func(http.ResponseWriter, call)
	change  func(c *config.RouterConfig)
}

func newBench(t *testing.T, s setup) *bench {
	t.Helper()
	key, cert := newKey(t)
	if s.prefill == nil {
		s.prefill = prefills(t)
	}
	if s.decode == nil {
		s.decode = append(s.decode, decodes(3))
	}
	b := &bench{p: newDaemon(t, "p", "p0", public(key), s.prefill)}
	pair := config.Pair{Name: "main", Model: "m", Prefill: []config.Engine{b.p.config()}}
	for i, script := range s.decode {
		d := newDaemon(t, fmt.Sprintf("d%d", i), "e", public(key), script)
		b.d = append(b.d, d)
		pair.Decode = append(pair.Decode, d.config())
	}
	cfg := &config.RouterConfig{Name: "front", Listen: "127.0.0.1:0", KeyFile: "/nonexistent", Pairs: []config.Pair{pair}}
	if s.change != nil {
		s.change(cfg)
	}
	b.front = run(t, cfg, cert)
	return b
}

func run(t *testing.T, cfg *config.RouterConfig, cert tls.Certificate) *front {
	t.Helper()
	f := &front{t: t, log: new(logBuffer)}
	var err error
	f.g, err = New(Options{Config: cfg, Certificate: cert, Poll: 20 * time.Millisecond, Log: slog.New(slog.NewJSONHandler(f.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.url = "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.g.Run(ctx, l) }()
	f.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := f.stop(); err != nil {
			t.Error(err)
		}
		for target, e := range f.g.fleet.engines {
			if e.Outstanding != 0 {
				t.Errorf("%v still counts %d requests", target, e.Outstanding)
			}
		}
	})
	f.get("/health") // answered only once the daemons were polled
	return f
}

// until waits for a state of an engine.
func (f *front) until(node string, want route.State) {
	f.t.Helper()
	deadline := time.After(patience)
	for {
		changed := f.g.fleet.watch()
		f.g.fleet.mu.Lock()
		var is route.State
		var why string
		for _, e := range f.g.fleet.engines {
			if e.Node == node {
				is, why = e.State()
			}
		}
		f.g.fleet.mu.Unlock()
		if is == want {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			f.t.Fatalf("node %s is %v (%s), not %v", node, is, why, want)
		}
	}
}

func (f *front) get(path string) (int, string) {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.url+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, readAll(f.t, resp)
}

// open posts a body and gives the answer with its body unread.
func (f *front) open(ctx context.Context, path, body string) (*http.Response, error) {
	f.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret")
	r.Header.Set("X-Moai-Transfer", "forged")
	return http.DefaultClient.Do(r)
}

func (f *front) post(body string) (*http.Response, string) {
	f.t.Helper()
	resp, err := f.open(f.t.Context(), "/v1/completions", body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp, readAll(f.t, resp)
}

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if cerr := resp.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// metric waits until the metrics contain a line that begins so: requests are
// counted after their answer.
func (f *front) metric(line string) {
	f.t.Helper()
	var text string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if _, text = f.get("/metrics"); strings.Contains(text, "\n"+line) {
			return
		}
	}
	f.t.Errorf("no line %s in the metrics:\n%s", line, text)
}

// recv waits for something.
func recv[T any](t *testing.T, ch <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
	}
	return v
}
