package node

import (
	"context"
	"fmt"
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/host"
)

// uninstall leaves the machine as it was. It works from every partial state. note receives what a person should know.
func (i *installer) uninstall(ctx context.Context, note func(string)) error {
	o, err := i.observe(ctx)
	if err != nil {
		return err
	}
	if markerStatus(o.marker, i.fleet.Name(), i.name) == stForeign {
		note(fmt.Sprintf("%s belongs to fleet %q, resource %s, by now. Nothing on it was touched.", i.host, o.marker.Fleet, o.marker.Resource))
		return nil
	}
	return i.host.WithLock(ctx, i.lockOwner(), func(ctx context.Context, _ *host.Lock) error {
		if err := i.noTenants(ctx); err != nil {
			return err
		}
		return i.remove(ctx, o.marker)
	})
}

// noTenants refuses to pull the daemon from under engines and routers that are still installed.
func (i *installer) noTenants(ctx context.Context) error {
	for _, dir := range tenants {
		files, _, err := i.host.Inspect(ctx, []string{dir}, nil)
		if err != nil {
			return err
		}
		if !files[0].Exists() {
			continue
		}
		kept, err := i.host.RemoveDir(ctx, dir)
		if err != nil {
			return err
		}
		if kept == host.Kept {
			return &tenantsError{host: i.host.String(), dir: dir}
		}
	}
	return nil
}

type tenantsError struct{ host, dir string }

// Error implements error.
func (e *tenantsError) Error() string { return fmt.Sprintf("%s: %s is not empty", e.host, e.dir) }

// Explain implements diagnose.Explained.
func (e *tenantsError) Explain() (summary, fix string) {
	return "Machine still has engines or routers", "Destroy them first. If their state was lost, import them and destroy them, or stop their units and remove their files from " + e.dir + " by hand"
}

// remove takes everything away that is the node's; m is its marker, or nil where somebody has removed it.
func (i *installer) remove(ctx context.Context, m *host.Marker) error {
	if err := i.host.DisableNow(ctx, unitName); err != nil {
		return err
	}
	if _, err := i.host.RemoveFile(ctx, unitPath); err != nil {
		return err
	}
	if err := i.host.DaemonReload(ctx); err != nil {
		return err
	}
	_ = i.host.ResetFailed(ctx, unitName) // a unit that is gone has nothing to forget
	if m != nil {
		if err := i.removeAccounts(ctx, m.Created); err != nil {
			return err
		}
	}
	// Before its folder: that may then hold nothing but the marker, so that its removal cannot stop half-way without one.
	if _, err := i.host.RemoveFile(ctx, configPath); err != nil {
		return err
	}
	for _, t := range trees {
		if _, err := i.host.RemoveTree(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// removeAccounts removes the users and groups that were made for the node. Those that were there before stay.
func (i *installer) removeAccounts(ctx context.Context, created []host.Account) error {
	ownGroup := slices.Contains(created, host.GroupAccount(groupMoai))
	for _, u := range slices.Backward(users()) {
		if !slices.Contains(created, host.UserAccount(u.Name)) {
			continue
		}
		if _, err := i.host.RemoveUser(ctx, u.Name, !ownGroup); err != nil {
			return err
		}
	}
	if !ownGroup {
		return nil
	}
	_, err := i.host.RemoveGroup(ctx, groupMoai)
	return err
}
