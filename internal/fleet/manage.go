package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

// Retries of management requests. Every verb is idempotent; what passes by itself does so within seconds, and whoever
// waits for longer asks the daemon to wait.
const (
	manageRetries = 3
	manageWaitMin = 250 * time.Millisecond
	manageWaitMax = 2 * time.Second
)

// Manage is the client of the node's management API, over `moaid dial` on the node. It dials nothing before it is used.
func (n *Node) Manage() *client.Client {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.manage == nil {
		rc := retryablehttp.NewClient()
		rc.HTTPClient = &http.Client{Transport: answering{n, client.Transport(n.dialManage)}}
		rc.Logger = nil
		rc.RetryMax, rc.RetryWaitMin, rc.RetryWaitMax = manageRetries, manageWaitMin, manageWaitMax
		rc.CheckRetry = retryManage
		rc.ErrorHandler = retryablehttp.PassthroughErrorHandler
		n.manage = client.NewFor(rc.StandardClient())
	}
	return n.manage
}

func (n *Node) dialManage(ctx context.Context) (net.Conn, error) {
	h, err := n.Host()
	if err != nil {
		return nil, err
	}
	return h.DialManagement(ctx)
}

// answering tells a daemon that does not answer from a host that cannot be reached.
type answering struct {
	node *Node
	*http.Transport
}

// RoundTrip implements http.RoundTripper.
func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.Transport.RoundTrip(r)
	var own *ssh.Error
	var profile *ProfileError
	switch {
	case err == nil || r.Context().Err() != nil || errors.As(err, &profile),
		errors.As(err, &own) && !errors.Is(own, ssh.ErrCommand):
		return resp, err
	}
	return resp, &SilentError{Name: a.node.Coordinates().Name, Err: err}
}

// SilentError says that a node's machine can be reached and its daemon does not answer.
type SilentError struct {
	Name string
	Err  error // what came instead of an answer
}

// Error implements error.
func (e *SilentError) Error() string {
	return fmt.Sprintf("the KV daemon of node %s does not answer: %s", e.Name, e.Err)
}

// Unwrap implements the protocol of errors.Is.
func (e *SilentError) Unwrap() error { return e.Err }

// Explain implements diagnose.Explained.
func (e *SilentError) Explain() (summary, fix string) {
	return "KV daemon on node " + e.Name + " does not answer",
		"Its machine can be reached over SSH, but " + KVDUnit + " is stopped or does not work. The next apply of its moai_node starts it; " +
			"if it does not stay up, read its log there: journalctl -u " + KVDUnit
}

// retryManage decides whether a management request is sent again. A host that cannot be reached was already tried
// several times by the pool.
func retryManage(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		var own *ssh.Error
		var profile *ProfileError
		switch {
		case errors.As(err, &profile):
			return false, nil
		case errors.As(err, &own):
			return errors.Is(err, ssh.ErrDropped) || errors.Is(err, ssh.ErrCommand), nil
		}
		return true, nil
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, nil
	}
	return false, nil
}
