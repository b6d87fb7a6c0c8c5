package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// EngineHTTP sends a request to an engine's own HTTP API through the daemon.
// path is absolute and may have a query: "/v1/completions". The answer is the
// engine's, or the daemon's if it could not reach the engine, with any status;
// its body is not bounded and the caller closes it. A request with a body that
// is no bytes.Reader, bytes.Buffer or strings.Reader cannot be retried.
func (c *Client) EngineHTTP(ctx context.Context, engine, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	base, err := object("engines", engine)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(path)
	if err != nil {
		return nil, fmt.Errorf("path %q: %w", path, err)
	}
	if !strings.HasPrefix(path, "/") || u.Host != "" || u.Fragment != "" {
		return nil, fmt.Errorf("path %q must begin with one / and have no host or fragment", path)
	}
	for seg := range strings.SplitSeq(u.Path, "/") {
		if seg == ".." {
			return nil, fmt.Errorf("path %q must not contain dot segments", path)
		}
	}
	r, err := c.request(ctx, method, base+"/http"+u.RequestURI(), body)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		r.Header[k] = append([]string(nil), v...)
	}
	resp, err := c.hc.Do(r)
	if err != nil {
		return nil, fmt.Errorf("engine %s through the management API: %w", engine, err)
	}
	return resp, nil
}
