package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	// maxAnswer bounds a JSON answer in bytes. The longest is the list of
	// transfers: 16 MiB hold about 30,000.
	maxAnswer = 16 << 20
	// maxMetrics bounds the text of /metrics in bytes.
	maxMetrics = 16 << 20
	// maxRequest is what the daemon takes as a request body, in bytes.
	maxRequest = 1 << 20
	// idleTimeout is below any reasonable server's, so that a request rarely
	// meets a connection which the other end is about to close.
	idleTimeout = 30 * time.Second
)

// DialFunc connects to the management socket.
type DialFunc func(ctx context.Context) (net.Conn, error)

// Client calls one daemon. It is safe for concurrent use.
type Client struct {
	hc *http.Client
}

// New gives a client that connects with dial. Close it to close idle
// connections.
func New(dial DialFunc) *Client {
	return NewFor(&http.Client{Transport: Transport(dial)})
}

// NewFor gives a client that sends through hc. Its transport must end in one
// that Transport made: requests name no real host. If it retries, it must pass
// the last answer on instead of replacing it by an error of its own.
func NewFor(hc *http.Client) *Client { return &Client{hc: hc} }

// Transport gives an HTTP transport whose every connection is made by dial. It
// has no time limit on answers: waits and probes take as long as they were told
// to, and ctx bounds them.
func Transport(dial DialFunc) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		// A connection may be a process on the host: few are enough.
		MaxConnsPerHost:     8,
		MaxIdleConnsPerHost: 2,
		IdleConnTimeout:     idleTimeout,
		DisableCompression:  true,
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.hc.CloseIdleConnections() }

// request builds a request to path (escaped, with query). body may be nil.
func (c *Client) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://moaid"+path, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return r, nil
}

// call sends in, if not nil, as JSON and decodes the answer into out, if not
// nil. Fields of the answer that this version does not know are ignored.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s %s: encode the request: %w", method, path, err)
		}
		if len(b) > maxRequest {
			return fmt.Errorf("%s %s: the request is %d bytes long, more than %d", method, path, len(b), maxRequest)
		}
		body = bytes.NewReader(b)
	}
	r, err := c.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	b, err := c.send(r, maxAnswer)
	if err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%w: %w", &UnexpectedError{Method: method, Path: r.URL.Path, Status: http.StatusOK, Body: excerpt(b)}, err)
	}
	return nil
}

// send sends r and gives the body of a 2xx answer, at most limit bytes.
func (c *Client) send(r *http.Request, limit int64) ([]byte, error) {
	resp, err := c.hc.Do(r)
	if err != nil {
		return nil, fmt.Errorf("management API: %w", err)
	}
	b, err := readBounded(resp.Body, limit)
	if cerr := resp.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: read the answer: %w", r.Method, r.URL.Path, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, refusal(r.Method, r.URL.Path, resp.StatusCode, b)
	}
	return b, nil
}

// readBounded reads to the end, or fails after limit bytes.
func readBounded(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("it is longer than %d bytes", limit)
	}
	return b, nil
}
