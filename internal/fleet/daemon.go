package fleet

import (
	"context"

	"github.com/moai-dev/terraform-provider-moai/internal/host"
)

// KVDUnit is the unit of a node's daemon.
const KVDUnit = "moai-kvd.service"

// Daemon is what is left of a node's daemon when its management API does not answer.
type Daemon string

// The states of a daemon. [DaemonAbsent] is proved by the machine; an unreachable machine is an error instead.
const (
	DaemonAbsent  Daemon = "absent"  // neither binary nor unit: whatever it was told is gone with it
	DaemonStopped Daemon = "stopped" // installed, not running; what it was told survives
	DaemonRunning Daemon = "running"
)

// Daemon asks the machine, not the management API, after the daemon.
func (n *Node) Daemon(ctx context.Context) (Daemon, error) {
	h, err := n.Open(ctx)
	if err != nil {
		return "", err
	}
	files, units, err := h.Inspect(ctx, []string{host.MoaidPath}, []string{KVDUnit})
	switch {
	case err != nil:
		return "", err
	case units[0].Active():
		return DaemonRunning, nil
	case !files[0].Exists() && !units[0].Found():
		return DaemonAbsent, nil
	}
	return DaemonStopped, nil
}

// Wake starts a daemon that is stopped, for a Delete that has to tell it something.
func (n *Node) Wake(ctx context.Context, why string) error {
	h, err := n.Open(ctx)
	if err != nil {
		return err
	}
	return h.WithLock(ctx, n.fleet.Writer(why), func(ctx context.Context, _ *host.Lock) error {
		return h.Start(ctx, KVDUnit)
	})
}
