package fleet

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

// Node is one machine at certain coordinates. It is safe for concurrent use.
type Node struct {
	fleet *Fleet

	mu     sync.Mutex
	coords Coordinates
	manage *client.Client
}

func nodeKey(c Coordinates) string {
	return strings.Join([]string{c.Name, c.Host, strconv.Itoa(sshPort(c.Port)), c.Profile, c.HostKey}, "\x00")
}

// Coordinates are where the node is. Its MachineID is what callers expect, not what the machine has said.
func (n *Node) Coordinates() Coordinates {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.coords
}

// Conn is the node's SSH connection, not set up yet. Errors are of type [*ProfileError] or [*ssh.Error].
func (n *Node) Conn() (*ssh.Conn, error) {
	target, err := n.fleet.settings.Target(n.Coordinates())
	if err != nil {
		return nil, err
	}
	return n.fleet.pool.Conn(target)
}

// Connect makes sure that the node can be reached.
func (n *Node) Connect(ctx context.Context) error {
	c, err := n.Conn()
	if err != nil {
		return err
	}
	return c.Connect(ctx)
}
