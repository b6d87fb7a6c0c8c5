package fleet

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/moai-dev/terraform-provider-moai/internal/facts"
	"github.com/moai-dev/terraform-provider-moai/internal/host"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh"
)

// Node is one machine at certain coordinates. It is safe for concurrent use.
type Node struct {
	fleet *Fleet

	mu        sync.Mutex
	coords    Coordinates
	manage    *client.Client
	facts     *facts.Facts
	machineID string // as the machine itself says
	failure   error  // why the last question was not answered
	asking    *probe
}

// probe is one question that several callers wait for.
type probe struct {
	done  chan struct{}
	facts facts.Facts
	err   error
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

// Host is the node as a machine. It dials nothing before it is used.
func (n *Node) Host() (*host.Host, error) {
	c, err := n.Conn()
	if err != nil {
		return nil, err
	}
	return n.fleet.host(c), nil
}

// Facts are what the machine is: asked once and remembered, also for callers that come at the same time. A failure is
// not remembered.
func (n *Node) Facts(ctx context.Context) (facts.Facts, error) {
	for {
		n.mu.Lock()
		if n.facts != nil {
			f := *n.facts
			n.mu.Unlock()
			return f, nil
		}
		p := n.asking
		if p == nil {
			p = &probe{done: make(chan struct{})}
			n.asking = p
			n.mu.Unlock()
			p.facts, p.err = n.ask(ctx)
			n.mu.Lock()
			n.asking = nil
			n.failure = p.err
			if p.err == nil {
				n.facts = &p.facts
			}
			n.mu.Unlock()
			close(p.done)
			return p.facts, p.err
		}
		n.mu.Unlock()
		select {
		case <-p.done:
			// The first caller's own interruption says nothing about the host.
			if p.err != nil && ctx.Err() == nil && (errors.Is(p.err, context.Canceled) || errors.Is(p.err, context.DeadlineExceeded)) {
				continue
			}
			return p.facts, p.err
		case <-ctx.Done():
			return facts.Facts{}, ctx.Err()
		}
	}
}

func (n *Node) ask(ctx context.Context) (facts.Facts, error) {
	h, err := n.Host()
	if err != nil {
		return facts.Facts{}, err
	}
	return h.Facts(ctx)
}

// KnownFacts are the facts if somebody has asked already.
func (n *Node) KnownFacts() (facts.Facts, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.facts == nil {
		return facts.Facts{}, false
	}
	return *n.facts, true
}

// IdentityError says that another machine answers at a node's coordinates.
type IdentityError struct {
	Name      string
	Want, Got string // machine-ids
}

// Error implements error.
func (e *IdentityError) Error() string {
	return fmt.Sprintf("node %s is the machine %s, but the machine %s answers at its address", e.Name, e.Want, e.Got)
}

// Explain implements diagnose.Explained.
func (e *IdentityError) Explain() (summary, fix string) {
	return "Another machine answers", "If the machine was replaced or reinstalled, replace the moai_node (terraform apply -replace=…); " +
		"if the address was given to somebody else, correct ssh.host. Nothing on it was changed"
}

// Verify makes sure that the machine at the node's coordinates is the one expected. It asks once a process.
func (n *Node) Verify(ctx context.Context) error {
	want := n.Coordinates().MachineID
	got, err := n.MachineID(ctx)
	if err != nil {
		return err
	}
	if want != "" && got != want {
		return &IdentityError{Name: n.Coordinates().Name, Want: want, Got: got}
	}
	return nil
}

// Failure is why the last question to the machine was not answered; nil when it was, or when none was asked. A plan uses it
// so as not to wait a second time for a machine that the refresh has found dead.
func (n *Node) Failure() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failure
}

// MachineID is what the machine itself says it is. It is much cheaper than [Node.Facts].
func (n *Node) MachineID(ctx context.Context) (string, error) {
	n.mu.Lock()
	id := n.machineID
	if id == "" && n.facts != nil {
		id = n.facts.MachineID
	}
	n.mu.Unlock()
	if id != "" {
		return id, nil
	}
	h, err := n.Host()
	if err != nil {
		return "", err
	}
	b, err := h.ReadFile(ctx, "/etc/machine-id")
	n.mu.Lock()
	n.failure = err
	n.mu.Unlock()
	if err != nil {
		return "", err
	}
	id = strings.TrimSpace(string(b))
	if id == "" || id == "uninitialized" {
		return "", fmt.Errorf("%s has no machine-id: run systemd-machine-id-setup on it", h)
	}
	n.mu.Lock()
	n.machineID = id
	n.mu.Unlock()
	return id, nil
}
