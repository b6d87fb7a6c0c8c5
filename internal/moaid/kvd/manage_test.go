package kvd

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport/conformance"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"

	apiconformance "github.com/moai-dev/terraform-provider-moai/internal/moaid/api/conformance"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
)

func (n *node) httpClient() *http.Client {
	return &http.Client{Transport: client.Transport(func(ctx context.Context) (net.Conn, error) {
		var nd net.Dialer
		return nd.DialContext(ctx, "unix", filepath.Join(n.dir, ManageSocket))
	})}
}

func TestManagementConformance(t *testing.T) {
	n := newNode(t, "p", nil)
	apiconformance.Run(t, n.httpClient(), "http://moaid")
}

func TestManagementConformanceOverRestarts(t *testing.T) {
	n := newNode(t, "p", nil)
	apiconformance.RunRestart(t, n.httpClient(), "http://moaid", func() {
		n.stop()
		n.start()
	})
}

func TestManagementConformanceOfProbes(t *testing.T) {
	p, q := newNode(t, "p", nil), newNode(t, "d", nil)
	link(t, p, q, api.EncryptionAEAD)
	apiconformance.RunProbe(t, p.httpClient(), "http://moaid", "main")
}

func TestPeerWireConformance(t *testing.T) {
	n := newNode(t, "p", nil)
	id, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	must[*api.Trust](t, "trust")(n.c.PutTrust(t.Context(), api.Trust{Name: "c", PublicKey: id.PublicString(), Role: api.RolePeer, Node: "client"}))
	must[*api.LinkStatus](t, "link")(n.c.PutLink(t.Context(), api.Link{Name: "c", Peer: "client", PeerKey: id.PublicString(), Encryption: api.EncryptionAEAD, Streams: 2}))
	conformance.Run(t, conformance.Target{Addr: n.addr, Node: "p", Key: n.d.identity.Public(), Client: id.Key, ClientNode: "client", Encryption: wire.EncryptionAEAD})
}

// TestStateSurvives: what the API was told is there after a restart.
func TestStateSurvives(t *testing.T) {
	p, d, _, _ := twoNodes(t, api.EncryptionNone, nil)
	must[*api.EngineStatus](t, "drain")(d.c.Drain(t.Context(), "decode", true))
	before := must[*api.Status](t, "status")(d.c.Status(t.Context()))
	d.stop()
	d.start()
	waitLink(t, d)
	waitLink(t, p)
	after := must[*api.Status](t, "status")(d.c.Status(t.Context()))
	if before.PublicKey != after.PublicKey || before.Instance == after.Instance {
		t.Error("the key must stay and the instance change")
	}
	if len(after.Trust) != 1 || len(after.Links) != 1 || len(after.Engines) != 1 || len(after.Pairs) != 1 || !after.Engines[0].Draining {
		t.Errorf("%+v", after)
	}
	if info, err := os.Stat(keyPath(d.dir)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v %v", info, err)
	}
}

// TestStaleSockets: files of a killed daemon do not stop the next one, a living
// one does.
func TestStaleSockets(t *testing.T) {
	n := newNode(t, "p", nil)
	other := n.opts
	other.Listen, other.StateDir = []string{"127.0.0.1:0"}, shortDir(t)
	d, err := New(other)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "another KV daemon") {
		t.Errorf("a second daemon: %v", err)
	}
	n.stop()
	for _, name := range []string{ManageSocket, EngineSocket} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(n.dir, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	n.start()
	if _, err := n.c.Status(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestUnauthorisedEngine(t *testing.T) {
	n := newNode(t, "p", nil)
	for name, change := range map[string]func(*api.Engine){
		"unit": func(e *api.Engine) { e.Unit = "moai-engine-x.service" },
		"user": func(e *api.Engine) { e.UID++ },
	} {
		reg := registration(n, name, "prefill", testFingerprint())
		change(&reg)
		must[*api.EngineStatus](t, "engine")(n.c.PutEngine(t.Context(), reg))
		c, err := enginesock.Dial(t.Context(), filepath.Join(n.dir, EngineSocket))
		if err != nil {
			t.Fatal(err)
		}
		b, err := enginesock.EncodeRequest(&enginesock.Hello{Version: enginesock.Version, Engine: name, Generation: newID(), Session: enginesock.Scheduler, World: 2, Fingerprint: testFingerprint()}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Write(b, nil); err != nil {
			t.Fatal(err)
		}
		in, _, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		r, err := enginesock.DecodeReply(in)
		var e *enginesock.Error
		if e, _ = r.(*enginesock.Error); err != nil || e == nil || e.Code != enginesock.CodeUnauthorized {
			t.Errorf("%s: %+v %v", name, r, err)
		}
		_ = c.Close()
	}
	if m := string(must[[]byte](t, "metrics")(n.c.Metrics(t.Context()))); !strings.Contains(m, `moai_auth_rejections_total{kind="engine"} 2`) {
		t.Error("the rejections were not counted")
	}
}

func get(ctx context.Context, t *testing.T, n *node, engine, path string, header http.Header) (*http.Response, string) {
	t.Helper()
	resp, err := n.c.EngineHTTP(ctx, engine, http.MethodPost, path, header, strings.NewReader(`{"x":1}`))
	if err != nil {
		return nil, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp, err.Error()
	}
	return resp, string(b)
}

func held(id string) http.Header {
	return http.Header{headerTransfer: {id}, headerSource: {"p/prefill"}}
}

// shortGrace lets tests see pages free that an engine might still have written.
func shortGrace(o *Options) { o.Timeouts.Grace = 50 * time.Millisecond }

func TestHoldAndForward(t *testing.T) {
	p, d, pe, de := twoNodes(t, api.EncryptionAEAD, shortGrace)
	id, hash := newID(), tokenHash(100, "a")
	type answer struct {
		resp *http.Response
		body string
	}
	got := make(chan answer, 1)
	go func() {
		r, b := get(t.Context(), t, d, "decode", "/v1/completions?q=1", held(id))
		got <- answer{r, b}
	}()
	d.waitState(id, "claimed")
	pe.prefill(id, 100, hash, false)
	d.waitState(id, "receiving")
	if n := de.http.requests(); n != 0 {
		t.Fatalf("%d requests were forwarded before the bytes came", n)
	}
	// The connector claims while the request runs, and finds the bytes.
	de.http.answers(func(w http.ResponseWriter, r *http.Request) {
		de.claim(r.Header.Get(headerTransfer), 100, hash, 32)
		de.verdict(r.Header.Get(headerTransfer))
		_, _ = w.Write([]byte(r.Method + " " + r.URL.String()))
	})
	pe.store(id, 100)
	a := <-got
	if a.resp == nil || a.resp.StatusCode != 200 || a.body != "POST /v1/completions?q=1" {
		t.Fatalf("%v %s", a.resp, a.body)
	}
	if a.resp.Header.Get(headerVerdict) != "ready" || a.resp.Header.Get(headerHold) == "" {
		t.Errorf("headers %v", a.resp.Header)
	}
	v := de.verdict(id)
	if v.Verdict != enginesock.Ready || v.FromToken != 0 {
		t.Fatalf("%+v", v)
	}
	de.compare(id, v)
	de.load(id, true)
	pe.released(id)

	// A held transfer of another prompt is not loaded.
	id = newID()
	pe.prefill(id, 100, hash, true)
	de.http.answers(func(http.ResponseWriter, *http.Request) {
		de.claim(id, 100, tokenHash(100, "bb"), 0)
		de.verdict(id)
	})
	get(t.Context(), t, d, "decode", "/v1/completions", held(id))
	if v := de.verdict(id); v.Code != enginesock.FailTokenHash {
		t.Errorf("%+v", v)
	}
	pe.released(id)

	// An engine that answers without claiming leaves nothing behind.
	de.http.answers(nil)
	id = newID()
	pe.prefill(id, 100, hash, true)
	get(t.Context(), t, d, "decode", "/v1/completions", held(id))
	if end := pe.released(id); end.Outcome != enginesock.Aborted {
		t.Errorf("%+v", end)
	}

	// Failure is forwarded too, and said.
	id = newID()
	pe.prefill(id, 100, hash, false)
	go func() {
		r, b := get(t.Context(), t, d, "decode", "/v1/completions", held(id))
		got <- answer{r, b}
	}()
	d.waitState(id, "receiving")
	pe.sched.Withdraw(id, "client left")
	if a := <-got; a.resp == nil || a.resp.Header.Get(headerVerdict) != "failed; code=withdrawn" {
		t.Errorf("%+v", a)
	}
	de.claim(id, 100, hash, 0)
	if v := de.verdict(id); v.Code != enginesock.FailWithdrawn {
		t.Errorf("%+v", v)
	}
	p.noPages()
	d.noPages()
}

func TestClientLeavesWhileHeld(t *testing.T) {
	p, d, pe, de := twoNodes(t, api.EncryptionAEAD, shortGrace)
	ids := []string{newID(), newID()}
	for i, id := range ids {
		pe.prefill(id, 100, tokenHash(100, "a"), false)
		ctx, cancel := context.WithCancel(t.Context())
		finished := make(chan string, 1)
		go func() { _, b := get(ctx, t, d, "decode", "/x", held(id)); finished <- b }()
		d.waitState(id, "receiving")
		if i == 0 {
			cancel() // the client's connection closes
		} else if err := d.c.CancelTransfer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if end := pe.released(id); end.Outcome != enginesock.Aborted {
			t.Errorf("%+v", end)
		}
		d.waitState(id, "aborted")
		<-finished
		cancel()
	}
	if n := de.http.requests(); n != 0 {
		t.Errorf("%d requests were forwarded", n)
	}
	p.noPages()
	d.noPages()
}

// TestStreamAndCancel: pieces arrive as they are written, a client that leaves
// ends the engine's request, an answer that breaks off breaks.
func TestStreamAndCancel(t *testing.T) {
	n := newNode(t, "p", nil)
	e := n.engine("prefill", "prefill", testFingerprint())
	step, gone := make(chan struct{}), make(chan struct{})
	e.http.answers(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/stream":
			_, _ = io.WriteString(w, "one")
			_ = http.NewResponseController(w).Flush()
			<-step
			_, _ = io.WriteString(w, "two")
		case "/cut":
			_, _ = io.WriteString(w, "part")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "/hang":
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			close(gone)
		}
	})
	resp, err := n.c.EngineHTTP(t.Context(), "prefill", http.MethodPost, "/stream", nil, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 3)
	if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != "one" {
		t.Fatalf("%q %v", buf, err)
	}
	close(step)
	if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != "two" {
		t.Fatalf("%q %v", buf, err)
	}
	_ = resp.Body.Close()
	resp, err = n.c.EngineHTTP(t.Context(), "prefill", http.MethodPost, "/cut", nil, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("a cut answer looks complete: %q", b)
	}
	_ = resp.Body.Close()
	ctx, cancel := context.WithCancel(t.Context())
	resp, err = n.c.EngineHTTP(ctx, "prefill", http.MethodPost, "/hang", nil, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = resp.Body.Close()
	select {
	case <-gone:
	case <-time.After(patience):
		t.Error("the engine's request outlived its client")
	}
}

func TestDrain(t *testing.T) {
	_, d, pe, de := twoNodes(t, api.EncryptionAEAD, nil)
	before, hash := newID(), tokenHash(60, "a")
	de.claim(before, 60, hash, 0)
	d.waitState(before, "claimed")
	must[*api.EngineStatus](t, "drain")(d.c.Drain(t.Context(), "decode", true))
	_, body := get(t.Context(), t, d, "decode", "/x", held(newID()))
	if !strings.Contains(body, "draining") {
		t.Errorf("a new request: %s", body)
	}
	pe.prefill(before, 60, hash, true)
	de.compare(before, de.verdict(before))
	de.load(before, true)
	pe.released(before)
	must[*api.EngineStatus](t, "drain")(d.c.Drain(t.Context(), "decode", false))
	if resp, body := get(t.Context(), t, d, "decode", "/x", nil); resp == nil || resp.StatusCode != 200 {
		t.Errorf("after the drain: %s", body)
	}
}

func TestRemoveEngine(t *testing.T) {
	p, d, pe, de := twoNodes(t, api.EncryptionAEAD, nil)
	id, hash := newID(), tokenHash(60, "a")
	pe.prefill(id, 60, hash, false)
	de.claim(id, 60, hash, 0)
	d.waitState(id, "receiving")
	for range 2 {
		if err := p.c.DeleteEngine(t.Context(), "prefill"); err != nil {
			t.Fatal(err)
		}
	}
	if v := de.verdict(id); v.Code != enginesock.FailWithdrawn {
		t.Errorf("%+v", v)
	}
	_, err := p.c.GetEngine(t.Context(), "prefill", 0)
	var ae *api.Error
	if !errors.As(err, &ae) && (err == nil || !strings.Contains(err.Error(), "not_found")) {
		t.Errorf("%v", err)
	}
	d.noPages()
}
