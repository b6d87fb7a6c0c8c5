package service

import "github.com/moai-dev/terraform-provider-moai/internal/host"

// Words of a status.
const (
	OK           = "ok"
	Changed      = "changed"
	Missing      = "missing"
	Foreign      = "foreign" // somebody else's
	Active       = "active"
	Outdated     = "outdated" // runs another unit than what is on disk
	Enabled      = "enabled"
	Disabled     = "disabled"
	Unresponsive = "unresponsive" // whoever should know did not answer
)

// Status is what became of a service, one word for each part.
type Status struct {
	Unit    string // file
	Config  string // file
	Service string // the running unit: active, outdated, missing or systemd's own word
	Boot    string
}

// Healthy is what every plan asks for.
var Healthy = Status{Unit: OK, Config: OK, Service: Active, Boot: Enabled}

// Judge compares what a host has with what it shall have.
func (s Service) Judge(f Found) Status {
	return Status{
		Unit:    fileStatus(f.UnitFile, s.unitFile()),
		Config:  fileStatus(f.Config, s.Config),
		Service: unitStatus(f),
		Boot:    bootStatus(f.Unit),
	}
}

func fileStatus(found host.FileState, want host.File) string {
	switch {
	case !found.Exists():
		return Missing
	case !want.Matches(found):
		return Changed
	}
	return OK
}

func unitStatus(f Found) string {
	u := f.Unit
	switch {
	case !u.Found():
		return Missing
	case !u.Active():
		return u.ActiveState
	case u.NeedDaemonReload, f.Pending.Exists():
		return Outdated
	}
	return Active
}

func bootStatus(u host.UnitState) string {
	if u.Enabled() {
		return Enabled
	}
	return Disabled
}
