package upstream_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/body"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/config"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/upstream"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
)

// pins trusts one gateway.
type pins struct{ key ed25519.PublicKey }

func (p pins) Allowed(pub ed25519.PublicKey, role api.Role) (name, node string, ok bool) {
	return "front", "", role == api.RoleGateway && p.key.Equal(pub)
}

func identity(t *testing.T) transport.Identity {
	t.Helper()
	id, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// daemon serves h as a KV daemon does, with its own transport.
func daemon(t *testing.T, id transport.Identity, gateway ed25519.PublicKey, h http.Handler) (address string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := transport.New(transport.Options{Node: "n", Identity: id, Pins: pins{gateway}, HTTP: h})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- m.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-served, m.Close()); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func node(t *testing.T, own transport.Identity, daemonKey ed25519.PublicKey, addresses ...string) *upstream.Node {
	t.Helper()
	cert, err := own.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	n, err := upstream.NewNode(upstream.NodeConfig{
		Node: "n", Addresses: addresses, PublicKey: config.KeyString(daemonKey), DialTimeout: 10 * time.Second, Certificate: cert,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// closedAddress is one that refuses connections.
func closedAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

func TestThroughTheDaemonsOwnTransport(t *testing.T) {
	own, theirs := identity(t), identity(t)
	cancelled := make(chan string, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /engines", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode([]api.EngineSummary{{Name: "e", Ready: true}})
	})
	mux.HandleFunc("DELETE /transfers/{id}", func(w http.ResponseWriter, r *http.Request) {
		cancelled <- r.PathValue("id")
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /engines/e/v1/completions", func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("X-Idempotency-Key") != "" || r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("got %v, headers %v", err, r.Header)
		}
		_, _ = w.Write(b)
	})
	// The first address refuses: the second one serves.
	n := node(t, own, theirs.Public(), closedAddress(t), daemon(t, theirs, own.Public(), mux))
	es, err := n.Engines(t.Context())
	if err != nil || len(es) != 1 || es[0].Name != "e" || !es[0].Ready {
		t.Errorf("engines: %v, %v", es, err)
	}
	if err := n.Cancel(t.Context(), "abc"); err != nil || <-cancelled != "abc" {
		t.Errorf("cancel: %v", err)
	}
	for range 2 {
		resp, err := n.Post(t.Context(), "e", "/v1/completions", http.Header{}, body.Segments{[]byte("a"), []byte("b")})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil || string(got) != "ab" || resp.Body.Close() != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

func TestKeys(t *testing.T) {
	own, theirs, other := identity(t), identity(t), identity(t)
	var served atomic.Int64
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) })
	address := daemon(t, theirs, own.Public(), h)

	_, err := node(t, own, other.Public(), address).Engines(t.Context())
	var ke *upstream.KeyError
	if !errors.As(err, &ke) || upstream.Classify(err) != upstream.ClassKey || !upstream.Down(err) || ke.Got != theirs.PublicString() {
		t.Errorf("a daemon with another key: %v", err)
	}
	if _, err := node(t, other, theirs.Public(), address).Engines(t.Context()); err == nil {
		t.Error("a daemon that does not pin our key served us")
	}
	if served.Load() != 0 {
		t.Errorf("%d requests were served", served.Load())
	}
	_, err = node(t, own, theirs.Public(), closedAddress(t)).Engines(t.Context())
	if upstream.Classify(err) != upstream.ClassDial || !upstream.Down(err) || !strings.Contains(err.Error(), "node n") {
		t.Errorf("nobody listens: %v", err)
	}
}

// More connections at once than a daemon lets be unauthenticated.
func TestBurst(t *testing.T) {
	own, theirs := identity(t), identity(t)
	const burst = 150
	var arrived sync.WaitGroup
	arrived.Add(burst)
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived.Done()
		arrived.Wait() // so that each needs a connection of its own
	})
	n := node(t, own, theirs.Public(), daemon(t, theirs, own.Public(), h))
	errs := make(chan error, burst)
	for range burst {
		go func() {
			resp, err := n.Post(t.Context(), "e", "/x", http.Header{}, body.Segments{[]byte("{}")})
			if err == nil {
				err = resp.Body.Close()
			}
			errs <- err
		}()
	}
	for range burst {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}
