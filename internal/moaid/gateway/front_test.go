package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/config"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/route"
)

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
	wait    time.Duration // for decode to return; 0 is next to nothing
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
	b.front = run(t, cfg, cert, s.wait)
	return b
}

func run(t *testing.T, cfg *config.RouterConfig, cert tls.Certificate, wait time.Duration) *front {
	t.Helper()
	f := &front{t: t, log: new(logBuffer)}
	var err error
	f.g, err = New(Options{Config: cfg, Certificate: cert, Poll: 20 * time.Millisecond, DecodeWait: max(wait, time.Millisecond), Log: slog.New(slog.NewJSONHandler(f.log, nil))})
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
