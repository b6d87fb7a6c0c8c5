package host

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/facts"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

// toolLimit bounds each tool on the host, in seconds; probeLimit the whole, for a tool that not even SIGKILL ends.
const (
	toolLimit  = 8
	probeLimit = 30 * time.Second
)

// Probe asks a host for everything that facts come from, in one session, reading only. A tool that hangs costs its own
// answer and those after it, not the probe: they are missing in the result, and [facts.Parse] says so as findings.
func (h *Host) Probe(ctx context.Context) (facts.Raw, error) {
	nonce := rand.Text()
	bounded, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	res, err := h.callAs(bounded, "-", "probe", "facts", nil, nonce, strconv.Itoa(h.opts.ToolLimit))
	raw := facts.Sections(nonce, string(res.Stdout))
	if err != nil && (!errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ssh.ErrUnreachable) || !raw.Has("uname")) {
		return nil, err
	}
	return raw, nil
}

// Facts probes a host and reads the answers.
func (h *Host) Facts(ctx context.Context) (facts.Facts, error) {
	raw, err := h.Probe(ctx)
	if err != nil {
		return facts.Facts{}, err
	}
	return facts.Parse(raw), nil
}
