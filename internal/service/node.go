package service

import (
	"context"
	"fmt"

	"github.com/moai-dev/terraform-provider-moai/internal/host"
)

// RequireNode refuses a host on which fleet has no node: nothing else of ours
// belongs on it.
func RequireNode(ctx context.Context, h *host.Host, fleet string) error {
	m, err := h.ReadMarker(ctx)
	if err != nil {
		return err
	}
	if m == nil || m.Fleet != fleet {
		return &NodeError{Host: h.String(), Fleet: fleet, Marker: m}
	}
	return nil
}

// NodeError says that a host carries no node of this fleet.
type NodeError struct {
	Host, Fleet string
	Marker      *host.Marker // nil if the host carries none
}

// Error implements error.
func (e *NodeError) Error() string {
	if e.Marker == nil {
		return fmt.Sprintf("%s carries no node of any fleet", e.Host)
	}
	return fmt.Sprintf("%s belongs to fleet %q, not to %q", e.Host, e.Marker.Fleet, e.Fleet)
}

// Explain implements diagnose.Explained.
func (e *NodeError) Explain() (summary, fix string) {
	return "Host is not a node of this fleet", "Pass a moai_node of this configuration as node, and let it be applied first. Nothing was changed"
}

// DiagnosticAttribute implements diagnose.Attributed.
func (e *NodeError) DiagnosticAttribute() string { return "node" }
