package fleet

import (
	"context"

	"github.com/moai-dev/terraform-provider-moai/internal/host"
)

// Open returns the machine of a node after making sure that it can be reached and is the expected one. It is what Create,
// Update and Delete of a resource on that node begin with.
func (n *Node) Open(ctx context.Context) (*host.Host, error) {
	if err := n.Verify(ctx); err != nil {
		return nil, err
	}
	return n.Host()
}

// Writer names this fleet's resource in lock files and markers, for people who look at a host.
func (f *Fleet) Writer(resource string) string { return "terraform fleet " + f.Name() + " " + resource }
