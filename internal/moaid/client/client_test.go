package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
)

// serve runs h on a unix socket and gives a client of it.
func serve(t *testing.T, h http.Handler) *client.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}}
	s.Start()
	c := client.New(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	})
	t.Cleanup(func() { c.Close(); s.Close() })
	return c
}

// always answers every request with one status and body, and remembers it.
type always struct {
	status         int
	body           string
	method, target string
	got            string
}

func (a *always) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	a.method, a.target, a.got = r.Method, r.URL.RequestURI(), string(b)
	w.WriteHeader(a.status)
	if _, err := io.WriteString(w, a.body); err != nil {
		panic(err)
	}
}

func TestVerbs(t *testing.T) {
	const id = "000102030405060708090a0b0c0d0e0f"
	for _, v := range []struct {
		name, method, target, sent string
		call                       func(ctx context.Context, c *client.Client) error
	}{
		{"status", "GET", "/v1/status", "", func(ctx context.Context, c *client.Client) error { _, err := c.Status(ctx); return err }},
		{"put trust", "PUT", "/v1/trust/a", `"role":"gateway"`, func(ctx context.Context, c *client.Client) error {
			_, err := c.PutTrust(ctx, api.Trust{Name: "a", Role: api.RoleGateway})
			return err
		}},
		{"get trust", "GET", "/v1/trust/a", "", func(ctx context.Context, c *client.Client) error { _, err := c.GetTrust(ctx, "a"); return err }},
		{"delete trust", "DELETE", "/v1/trust/a", "", func(ctx context.Context, c *client.Client) error { return c.DeleteTrust(ctx, "a") }},
		{"put link", "PUT", "/v1/links/l", `"streams":4`, func(ctx context.Context, c *client.Client) error {
			_, err := c.PutLink(ctx, api.Link{Name: "l", Streams: 4})
			return err
		}},
		{"get link", "GET", "/v1/links/l", "", func(ctx context.Context, c *client.Client) error { _, err := c.GetLink(ctx, "l"); return err }},
		{"wait link", "GET", "/v1/links/l?wait=10s", "", func(ctx context.Context, c *client.Client) error {
			_, err := c.WaitLink(ctx, "l", 10*time.Second)
			return err
		}},
		{"delete link", "DELETE", "/v1/links/l", "", func(ctx context.Context, c *client.Client) error { return c.DeleteLink(ctx, "l") }},
		{"probe", "PUT", "/v1/links/l/probes/p", `{"bytes":7}`, func(ctx context.Context, c *client.Client) error {
			_, err := c.Probe(ctx, "l", "p", 7)
			return err
		}},
		{"put engine", "PUT", "/v1/engines/e", `"unit":"u.service"`, func(ctx context.Context, c *client.Client) error {
			_, err := c.PutEngine(ctx, api.Engine{Name: "e", Unit: "u.service"})
			return err
		}},
		{"get engine", "GET", "/v1/engines/e?wait=1m30s", "", func(ctx context.Context, c *client.Client) error {
			_, err := c.GetEngine(ctx, "e", 90*time.Second)
			return err
		}},
		{"delete engine", "DELETE", "/v1/engines/e", "", func(ctx context.Context, c *client.Client) error { return c.DeleteEngine(ctx, "e") }},
		{"drain", "PUT", "/v1/engines/e/drain", `{"draining":true}`, func(ctx context.Context, c *client.Client) error {
			_, err := c.Drain(ctx, "e", true)
			return err
		}},
		{"put pair", "PUT", "/v1/pairs/p", `"prefill"`, func(ctx context.Context, c *client.Client) error {
			_, err := c.PutPair(ctx, api.Pair{Name: "p"})
			return err
		}},
		{"get pair", "GET", "/v1/pairs/p", "", func(ctx context.Context, c *client.Client) error { _, err := c.GetPair(ctx, "p"); return err }},
		{"delete pair", "DELETE", "/v1/pairs/p", "", func(ctx context.Context, c *client.Client) error { return c.DeletePair(ctx, "p") }},
		{"cancel", "DELETE", "/v1/transfers/" + id, "", func(ctx context.Context, c *client.Client) error { return c.CancelTransfer(ctx, id) }},
		{"metrics", "GET", "/metrics", "", func(ctx context.Context, c *client.Client) error { _, err := c.Metrics(ctx); return err }},
	} {
		t.Run(v.name, func(t *testing.T) {
			a := &always{status: 200, body: "{}"}
			if strings.HasPrefix(v.method, "DELETE") {
				a.status, a.body = 204, ""
			}
			if err := v.call(t.Context(), serve(t, a)); err != nil {
				t.Fatal(err)
			}
			if a.method != v.method || a.target != v.target || !strings.Contains(a.got, v.sent) || (v.sent == "") != (a.got == "") {
				t.Errorf("got %s %s %q, want %s %s with %q", a.method, a.target, a.got, v.method, v.target, v.sent)
			}
		})
	}
}

func TestAnswersAreDecoded(t *testing.T) {
	c := serve(t, &always{status: 200, body: `[{"id":"x","bytes_moved":5,"of_a_later_version":1}]`})
	ts, err := c.Transfers(t.Context())
	if err != nil || len(ts) != 1 || ts[0].BytesMoved != 5 {
		t.Errorf("got %v, %v", ts, err)
	}
}

func TestErrors(t *testing.T) {
	for _, v := range []struct {
		name, body string
		status     int
		notFound   bool
		code       string // "" if the error is not the daemon's
	}{
		{"object absent", `{"error":{"code":"not_found","message":"no link l"}}`, 404, true, "not_found"},
		{"path unknown", `{"error":{"code":"unknown_path","message":"no such path"}}`, 404, false, "unknown_path"},
		{"refused", `{"error":{"code":"bad_request","message":"streams","attribute":"streams"}}`, 400, false, "bad_request"},
		{"another server", "404 page not found\n", 404, false, ""},
		{"JSON of another server", `{"detail":"Not Found"}`, 404, false, ""},
		{"no JSON", "<html>", 200, false, ""},
	} {
		t.Run(v.name, func(t *testing.T) {
			_, err := serve(t, &always{status: v.status, body: v.body}).GetLink(t.Context(), "l")
			if err == nil {
				t.Fatal("no error")
			}
			if client.IsNotFound(err) != v.notFound {
				t.Errorf("IsNotFound is %v of %v", !v.notFound, err)
			}
			var ae *api.Error
			var ue *client.UnexpectedError
			switch {
			case v.code == "" && !errors.As(err, &ue):
				t.Errorf("%v is no UnexpectedError", err)
			case v.code != "" && (!errors.As(err, &ae) || ae.Code != v.code):
				t.Errorf("%v has not the code %q", err, v.code)
			}
			if !strings.Contains(err.Error(), "/v1/links/l") {
				t.Errorf("%v does not say what was asked", err)
			}
		})
	}
}

func TestDialErrorIsKept(t *testing.T) {
	want := errors.New("ssh: no route")
	c := client.New(func(context.Context) (net.Conn, error) { return nil, want })
	_, err := c.Status(t.Context())
	if !errors.Is(err, want) || client.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

func TestBadNamesAreNotSent(t *testing.T) {
	a := &always{status: 200, body: "{}"}
	c := serve(t, a)
	for _, name := range []string{"", "A", "a/b", "..", "-a", strings.Repeat("a", 64), "a b", "é"} {
		if _, err := c.GetLink(t.Context(), name); err == nil {
			t.Errorf("%q was taken as a name", name)
		}
	}
	if err := c.CancelTransfer(t.Context(), "zz"); err == nil {
		t.Error("zz was taken as a transfer id")
	}
	if _, err := c.Probe(t.Context(), "l", "../x", 1); err == nil {
		t.Error("../x was taken as a probe's name")
	}
	if a.method != "" {
		t.Errorf("%s %s was sent", a.method, a.target)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	chunk := strings.Repeat(" ", 1<<20)
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
		}
	}))
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("got %v", err)
	}
	if _, err := c.PutTrust(t.Context(), api.Trust{Name: "a", Node: strings.Repeat("x", 2<<20)}); err == nil {
		t.Error("a request of 2 MiB was sent")
	}
}

func TestEngineHTTP(t *testing.T) {
	gone := make(chan struct{})
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Saw", r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("X-Moai-Transfer")+" "+string(b))
		w.WriteHeader(http.StatusTeapot)
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		<-r.Context().Done()
		close(gone)
	}))
	h := http.Header{"X-Moai-Transfer": {"id"}}
	resp, err := c.EngineHTTP(t.Context(), "e", http.MethodPost, "/v1/completions?a=b%2Fc", h, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := resp.Header.Get("X-Saw"), "POST /v1/engines/e/http/v1/completions?a=b%2Fc id body"; got != want || resp.StatusCode != http.StatusTeapot {
		t.Errorf("got %d %q, want %q", resp.StatusCode, got, want)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	<-gone // closing the answer early ends the engine's request
	for _, p := range []string{"", "v1", "//host/x", "/a/../../b", "/x#f", "http://h/x", "/a/%2e%2e/b"} {
		resp, err := c.EngineHTTP(t.Context(), "e", http.MethodGet, p, nil, nil)
		if err == nil {
			t.Errorf("%q was taken as a path", p)
		}
		if err == nil {
			_ = resp.Body.Close()
		}
	}
}
