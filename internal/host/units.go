package host

import (
	"context"
	"fmt"
	"strconv"

	"github.com/moai-dev/terraform-provider-moai/internal/systemd"
)

// DaemonReload makes systemd read its unit files again.
func (h *Host) DaemonReload(ctx context.Context) error {
	res, err := h.call(ctx, "unit", "daemon-reload", nil, "daemon-reload", "-")
	return h.done("unit", "daemon-reload", res, err)
}

// EnableNow enables and starts a unit. When it fails, the error holds the unit's last log lines.
func (h *Host) EnableNow(ctx context.Context, unit string) error {
	return h.unit(ctx, "enable-now", unit)
}

// Start starts a unit. When it fails, the error holds the unit's last log lines.
func (h *Host) Start(ctx context.Context, unit string) error { return h.unit(ctx, "start", unit) }

// Restart restarts a unit. When it fails, the error holds the unit's last log lines.
func (h *Host) Restart(ctx context.Context, unit string) error { return h.unit(ctx, "restart", unit) }

// Stop stops a unit. A unit that systemd does not know is stopped.
func (h *Host) Stop(ctx context.Context, unit string) error { return h.unit(ctx, "stop", unit) }

// Disable disables a unit without stopping it. A unit that systemd does not know is disabled.
func (h *Host) Disable(ctx context.Context, unit string) error { return h.unit(ctx, "disable", unit) }

// DisableNow stops and disables a unit. A unit that systemd does not know is both.
func (h *Host) DisableNow(ctx context.Context, unit string) error {
	return h.unit(ctx, "disable-now", unit)
}

// ResetFailed forgets a unit's failures, so that its start limit does not hold a start back.
func (h *Host) ResetFailed(ctx context.Context, unit string) error {
	return h.unit(ctx, "reset-failed", unit)
}

func (h *Host) unit(ctx context.Context, verb, unit string) error {
	if err := systemd.ValidateUnitName(unit); err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	res, err := h.call(ctx, "unit", verb+" "+unit, nil, verb, unit)
	if err == nil && word(res) == "gone" {
		return nil
	}
	return h.done("unit", verb+" "+unit, res, err)
}

// JournalTail returns the last n log lines of a unit, with the connection's secrets removed.
func (h *Host) JournalTail(ctx context.Context, unit string, n int) (string, error) {
	if err := systemd.ValidateUnitName(unit); err != nil {
		return "", fmt.Errorf("journal: %w", err)
	}
	res, err := h.call(ctx, "journal", unit, nil, unit, strconv.Itoa(n))
	if err != nil {
		return "", err
	}
	return h.conn.Redact(string(res.Stdout)), nil
}
