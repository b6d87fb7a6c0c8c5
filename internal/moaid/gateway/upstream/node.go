// Package upstream reaches engines through the KV daemons of their nodes
// (docs/protocols/peer-wire.md, "Gateway"): HTTP/1.1 inside TLS 1.3, where each
// end accepts exactly the other's pinned key.
package upstream

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/body"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/config"
)

const (
	// maxConns bounds the connections for requests to one node; each carries
	// one request. More requests wait.
	maxConns = 8192
	// maxDials bounds the connections that are being made to one node at a time.
	// The daemon closes the oldest of more than 64 that have not shown their key
	// yet, and a burst of handshakes would make each of them late.
	maxDials = 16
	// maxIdle connections are kept for the next requests.
	maxIdle = 256
	// idleTimeout must be below the daemon's (60 s at least), so that a request
	// does not meet a connection which the daemon is about to close.
	idleTimeout = 30 * time.Second
	// sideConns carry health polls and cancels, so that these never wait behind
	// requests.
	sideConns = 4
	// maxList bounds the daemon's list of engines, in bytes.
	maxList = 1 << 20
)

// NodeConfig says where a node's daemon is.
type NodeConfig struct {
	Node        string
	Addresses   []string
	PublicKey   string
	DialTimeout time.Duration
	Certificate tls.Certificate
}

// Node is a node's daemon.
type Node struct {
	Name string
	data *http.Transport
	side *http.Transport
}

// NewNode connects to nothing yet.
func NewNode(c NodeConfig) (*Node, error) {
	key, err := config.ParseKey(c.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", c.Node, err)
	}
	d := &dialer{node: c.Node, addresses: c.Addresses, timeout: c.DialTimeout, tls: tlsConfig(c.Node, key, c.Certificate),
		slots: make(chan struct{}, maxDials)}
	pool := func(most, idle int) *http.Transport {
		return &http.Transport{
			DialTLSContext:      func(ctx context.Context, _, _ string) (net.Conn, error) { return d.dial(ctx) },
			MaxConnsPerHost:     most,
			MaxIdleConnsPerHost: idle,
			IdleConnTimeout:     idleTimeout,
			DisableCompression:  true, // the client's Accept-Encoding is not ours to answer
		}
	}
	return &Node{Name: c.Node, data: pool(maxConns, maxIdle), side: pool(sideConns, 2)}, nil
}

// Close closes idle connections.
func (n *Node) Close() {
	n.data.CloseIdleConnections()
	n.side.CloseIdleConnections()
}

// Post sends a request to an engine. The answer has any status; the caller
// closes its body. Cancelling ctx closes the connection, by which the daemon
// learns of it.
func (n *Node) Post(ctx context.Context, engine, path string, h http.Header, b body.Segments) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+n.Name+"/engines/"+engine+path, io.NopCloser(b.Reader()))
	if err != nil {
		return nil, err
	}
	r.ContentLength = b.Len()
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(b.Reader()), nil }
	r.Header = h.Clone()
	// Lets the transport send again on a new connection if a kept one turned out
	// to be closed before any answer; no such header is sent.
	r.Header["X-Idempotency-Key"] = nil
	return n.data.RoundTrip(r)
}

// Engines asks the daemon for its engines.
func (n *Node) Engines(ctx context.Context) ([]api.EngineSummary, error) {
	b, err := n.call(ctx, http.MethodGet, "/engines")
	if err != nil {
		return nil, err
	}
	var es []api.EngineSummary
	if err := json.Unmarshal(b, &es); err != nil {
		return nil, fmt.Errorf("node %s: list of engines: %w", n.Name, err)
	}
	return es, nil
}

// Cancel tells the daemon that the client of a transfer has gone.
func (n *Node) Cancel(ctx context.Context, id string) error {
	_, err := n.call(ctx, http.MethodDelete, "/transfers/"+id)
	return err
}

func (n *Node) call(ctx context.Context, method, path string) (_ []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, method, "https://"+n.Name+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := n.side.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxList+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("node %s: %s %s: %w", n.Name, method, path, err)
	case resp.StatusCode/100 != 2:
		return nil, fmt.Errorf("node %s: %s %s: status %d", n.Name, method, path, resp.StatusCode)
	case len(b) > maxList:
		return nil, fmt.Errorf("node %s: %s %s: the answer is longer than %d bytes", n.Name, method, path, maxList)
	}
	return b, nil
}
