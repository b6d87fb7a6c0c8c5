package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/moai-dev/terraform-provider-moai/internal/host"
	"github.com/moai-dev/terraform-provider-moai/internal/systemd"
)

// Service is what shall be on a host.
type Service struct {
	Owner    systemd.Owner
	ImportID string    // for the sentence about what is there already
	Unit     string    // name, such as "moai-engine-x.service"
	UnitText string    // stamped with Owner
	Config   host.File // its configuration
}

// UnitPath is where the unit's file is.
func (s Service) UnitPath() string { return host.UnitDir + "/" + s.Unit }

func (s Service) unitFile() host.File {
	return host.File{Path: s.UnitPath(), Content: []byte(s.UnitText)}
}

// pendingPath is a file that is there while a change is under way that needs a
// restart: a run that ends between writing and restarting leaves a trace, which the
// next plan shows and finishes.
func (s Service) pendingPath() string { return s.Config.Path + ".pending" }

// Found is what a host has of a service.
type Found struct {
	Unit     host.UnitState
	UnitFile host.FileState
	Config   host.FileState
	Pending  host.FileState
}

// Gone reports whether the host proved that it has nothing of the service.
func (f Found) Gone() bool {
	return !f.Unit.Found() && !f.UnitFile.Exists() && !f.Config.Exists() && !f.Pending.Exists()
}

// Stale reports whether a unit runs that is not what shall be on disk. config says
// that a running unit has read its configuration for good.
func (s Service) Stale(f Found, config bool) bool {
	st := s.Judge(f)
	return f.Unit.Active() && (st.Unit != OK || st.Service == Outdated || config && st.Config != OK)
}

// Begin leaves the trace of a change that needs a restart; Finish removes it.
func (s Service) Begin(ctx context.Context, h *host.Host) error {
	_, err := h.PutFile(ctx, host.File{Path: s.pendingPath(), Content: []byte("a change was begun\n")})
	return err
}

// Finish removes the trace of a change.
func (s Service) Finish(ctx context.Context, h *host.Host) error {
	_, err := h.RemoveFile(ctx, s.pendingPath())
	return err
}

// Inspect looks at what the host has. An error means that the host could not
// tell; it never means absence.
func (s Service) Inspect(ctx context.Context, h *host.Host) (Found, error) {
	files, units, err := h.Inspect(ctx, []string{s.UnitPath(), s.Config.Path, s.pendingPath()}, []string{s.Unit})
	if err != nil {
		return Found{}, err
	}
	return Found{Unit: units[0], UnitFile: files[0], Config: files[1], Pending: files[2]}, nil
}

// ForeignError says that what is at a service's place belongs to somebody else.
type ForeignError struct {
	Host, Path string
	Owner      *systemd.Owner // nil if nobody put a name on it
	ImportID   string
	Fleet      string
}

// Error implements error.
func (e *ForeignError) Error() string {
	if e.Owner == nil {
		return fmt.Sprintf("%s on %s was not written by this provider", e.Path, e.Host)
	}
	return fmt.Sprintf("%s on %s belongs to %s of fleet %q", e.Path, e.Host, e.Owner.Resource, e.Owner.Fleet)
}

// Explain implements diagnose.Explained.
func (e *ForeignError) Explain() (summary, fix string) {
	if e.Owner != nil && e.Owner.Fleet == e.Fleet {
		return "Already exists", fmt.Sprintf("Nothing was changed. If both mean the same, import it: terraform import <address of this resource> '%s'", e.ImportID)
	}
	if e.Owner != nil {
		return "Already exists and is not ours", fmt.Sprintf(
			"Nothing was changed. If this configuration is that fleet, set fleet = %q in the provider block; else destroy it there first, or use another name", e.Owner.Fleet)
	}
	return "Already exists and is not ours", "Nothing was changed. Use another name, or remove what is there by hand if nobody needs it"
}

// CheckOwner refuses what somebody else put at the service's place. What carries
// the same fleet and resource is ours, also when the state knows nothing of it:
// an interrupted run may have left it.
func (s Service) CheckOwner(ctx context.Context, h *host.Host, f Found) error {
	foreign := &ForeignError{
		Host: h.String(), Path: s.UnitPath(), Fleet: s.Owner.Fleet,
		ImportID: s.ImportID,
	}
	if f.Unit.Found() && f.Unit.FragmentPath != "" && f.Unit.FragmentPath != s.UnitPath() {
		foreign.Path = f.Unit.FragmentPath
		return foreign
	}
	if !f.UnitFile.Exists() {
		return nil
	}
	b, err := h.ReadFile(ctx, s.UnitPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	o, _, ok := systemd.ReadStamp(string(b))
	if !ok {
		return foreign
	}
	if o.Fleet != s.Owner.Fleet || o.Resource != s.Owner.Resource {
		foreign.Owner = &o
		return foreign
	}
	return nil
}

// Look is [Service.Judge] with a word for a unit file that somebody else put there.
func (s Service) Look(ctx context.Context, h *host.Host, f Found) (Status, error) {
	st := s.Judge(f)
	if st.Unit != Changed {
		return st, nil
	}
	err := s.CheckOwner(ctx, h, f)
	if errors.As(err, new(*ForeignError)) {
		st.Unit, err = Foreign, nil
	}
	return st, err
}

// Refuse asks the host and returns a [*ForeignError] if it has something of somebody else at the service's place.
func (s Service) Refuse(ctx context.Context, h *host.Host) error {
	found, err := s.Inspect(ctx, h)
	if err != nil {
		return err
	}
	return s.CheckOwner(ctx, h, found)
}

// Install makes files and unit be as they shall be. It starts nothing.
func (s Service) Install(ctx context.Context, h *host.Host) error {
	for _, f := range []host.File{s.Config, s.unitFile()} {
		if _, err := h.PutFile(ctx, f); err != nil {
			return err
		}
	}
	// Also without a change: an interrupted run may have written the file and not said so to systemd.
	return h.DaemonReload(ctx)
}

// Former is the service as the host has it now, to be put back if a change does not start.
func (s Service) Former(ctx context.Context, h *host.Host) (Service, error) {
	unit, err := h.ReadFile(ctx, s.UnitPath())
	if err != nil {
		return s, err
	}
	config, err := h.ReadFile(ctx, s.Config.Path)
	if err != nil {
		return s, err
	}
	s.UnitText, s.Config.Content = string(unit), config
	return s, nil
}

// PutBack makes the host have s again, running, and ends the trace of the change that failed.
func (s Service) PutBack(ctx context.Context, h *host.Host) error {
	if err := s.Install(ctx, h); err != nil {
		return err
	}
	if err := s.Start(ctx, h, true); err != nil {
		return err
	}
	return s.Finish(ctx, h)
}

// Start enables the unit and has it running: started if it does not run, and
// restarted if restart says so. A start limit reached before does not hold it
// back.
func (s Service) Start(ctx context.Context, h *host.Host, restart bool) error {
	if err := h.ResetFailed(ctx, s.Unit); err != nil {
		return err
	}
	if err := h.EnableNow(ctx, s.Unit); err != nil {
		return err
	}
	if !restart {
		return nil
	}
	return h.Restart(ctx, s.Unit)
}

// Remove stops the unit and removes it with its configuration. It works from
// every partial state.
func (s Service) Remove(ctx context.Context, h *host.Host) error {
	if err := h.DisableNow(ctx, s.Unit); err != nil {
		return err
	}
	if err := h.ResetFailed(ctx, s.Unit); err != nil {
		return err
	}
	if _, err := h.RemoveFile(ctx, s.UnitPath()); err != nil {
		return err
	}
	if err := h.DaemonReload(ctx); err != nil {
		return err
	}
	if _, err := h.RemoveFile(ctx, s.Config.Path); err != nil {
		return err
	}
	return s.Finish(ctx, h)
}
