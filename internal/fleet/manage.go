package fleet

import (
	"context"
	"errors"
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
		rc.HTTPClient = &http.Client{Transport: client.Transport(n.dialManage)}
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
			return errors.Is(err, ssh.ErrDropped), nil
		}
		return true, nil
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, nil
	}
	return false, nil
}
