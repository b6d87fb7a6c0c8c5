package client

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
)

var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// object gives the path of a named object, or says why the name is none.
func object(kind, name string) (string, error) {
	if !nameRE.MatchString(name) {
		return "", fmt.Errorf("%q is no name of one of %s: 1 to 63 of a-z, 0-9 and -, beginning with a letter or digit", name, kind)
	}
	return "/v1/" + kind + "/" + name, nil
}

// waitQuery asks the daemon to answer at the latest after wait; 0 is at once.
func waitQuery(wait time.Duration) string {
	if wait <= 0 {
		return ""
	}
	return "?wait=" + wait.String()
}

// on calls method on an object and decodes the answer as a T.
func on[T any](ctx context.Context, c *Client, method, kind, name, suffix string, in any) (*T, error) {
	path, err := object(kind, name)
	if err != nil {
		return nil, err
	}
	out := new(T)
	if err := c.call(ctx, method, path+suffix, in, out); err != nil {
		return nil, err
	}
	return out, nil
}

// remove deletes an object; one that is not there is no error.
func remove(ctx context.Context, c *Client, kind, name string) error {
	path, err := object(kind, name)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil)
}

// Status gives the daemon's identity and all that it holds.
func (c *Client) Status(ctx context.Context) (*api.Status, error) {
	out := new(api.Status)
	if err := c.call(ctx, http.MethodGet, "/v1/status", nil, out); err != nil {
		return nil, err
	}
	return out, nil
}

// PutTrust pins a key under t.Name.
func (c *Client) PutTrust(ctx context.Context, t api.Trust) (*api.Trust, error) {
	return on[api.Trust](ctx, c, http.MethodPut, "trust", t.Name, "", t)
}

// GetTrust gives a pinned key.
func (c *Client) GetTrust(ctx context.Context, name string) (*api.Trust, error) {
	return on[api.Trust](ctx, c, http.MethodGet, "trust", name, "", nil)
}

// DeleteTrust removes a pin and closes the sessions that needed it.
func (c *Client) DeleteTrust(ctx context.Context, name string) error {
	return remove(ctx, c, "trust", name)
}

// PutLink makes or changes a link. It connects in the background.
func (c *Client) PutLink(ctx context.Context, l api.Link) (*api.LinkStatus, error) {
	return on[api.LinkStatus](ctx, c, http.MethodPut, "links", l.Name, "", l)
}

// GetLink gives a link as it is now.
func (c *Client) GetLink(ctx context.Context, name string) (*api.LinkStatus, error) {
	return c.WaitLink(ctx, name, 0)
}

// WaitLink gives a link once it is up, or as it is after wait. Up in the answer
// tells which; LastError says why it is not.
func (c *Client) WaitLink(ctx context.Context, name string, wait time.Duration) (*api.LinkStatus, error) {
	return on[api.LinkStatus](ctx, c, http.MethodGet, "links", name, waitQuery(wait), nil)
}

// DeleteLink removes a link and closes its sessions.
func (c *Client) DeleteLink(ctx context.Context, name string) error {
	return remove(ctx, c, "links", name)
}

// Probe moves bytes bytes of pseudo-random data to the link's peer. The name of
// the probe makes a repeated request the same probe.
func (c *Client) Probe(ctx context.Context, link, probe string, bytes int64) (*api.ProbeResult, error) {
	if !nameRE.MatchString(probe) {
		return nil, fmt.Errorf("%q is no name of a probe", probe)
	}
	return on[api.ProbeResult](ctx, c, http.MethodPut, "links", link, "/probes/"+probe, api.Probe{Bytes: bytes})
}

// PutEngine registers an engine or changes its registration.
func (c *Client) PutEngine(ctx context.Context, e api.Engine) (*api.EngineStatus, error) {
	return on[api.EngineStatus](ctx, c, http.MethodPut, "engines", e.Name, "", e)
}

// GetEngine gives an engine once it is ready, or as it is after wait; 0 is at
// once. Ready in the answer tells which; Reason says why it is not.
func (c *Client) GetEngine(ctx context.Context, name string, wait time.Duration) (*api.EngineStatus, error) {
	return on[api.EngineStatus](ctx, c, http.MethodGet, "engines", name, waitQuery(wait), nil)
}

// DeleteEngine removes the registration of an engine and ends its transfers.
func (c *Client) DeleteEngine(ctx context.Context, name string) error {
	return remove(ctx, c, "engines", name)
}

// Drain says whether an engine shall take new work.
func (c *Client) Drain(ctx context.Context, engine string, draining bool) (*api.EngineStatus, error) {
	return on[api.EngineStatus](ctx, c, http.MethodPut, "engines", engine, "/drain", api.Drain{Draining: draining})
}

// PutPair allows KV transfers between engines.
func (c *Client) PutPair(ctx context.Context, p api.Pair) (*api.Pair, error) {
	return on[api.Pair](ctx, c, http.MethodPut, "pairs", p.Name, "", p)
}

// GetPair gives a pair.
func (c *Client) GetPair(ctx context.Context, name string) (*api.Pair, error) {
	return on[api.Pair](ctx, c, http.MethodGet, "pairs", name, "", nil)
}

// DeletePair forbids what the pair allowed.
func (c *Client) DeletePair(ctx context.Context, name string) error {
	return remove(ctx, c, "pairs", name)
}

// Transfers lists live and recently ended transfers.
func (c *Client) Transfers(ctx context.Context) ([]api.Transfer, error) {
	var out []api.Transfer
	if err := c.call(ctx, http.MethodGet, "/v1/transfers", nil, &out); err != nil {
		return nil, err
	}
	return out, nil
}

// CancelTransfer cancels a transfer; one that is not there is no error. id is 32
// hex digits.
func (c *Client) CancelTransfer(ctx context.Context, id string) error {
	if b, err := hex.DecodeString(id); err != nil || len(b) != 16 {
		return fmt.Errorf("%q is no transfer id: 32 hex digits", id)
	}
	return c.call(ctx, http.MethodDelete, "/v1/transfers/"+id, nil, nil)
}

// Metrics gives the daemon's metrics as Prometheus text.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	r, err := c.request(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil, err
	}
	return c.send(r, maxMetrics)
}
