package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// State is what there is to say about one unit.
type State struct {
	ID           string
	Description  string
	Load         string // loaded, not-found, bad-setting
	Active       string // active, inactive, failed, activating, deactivating
	Sub          string // running, dead, failed, auto-restart, start, stop-sigterm, exited
	File         string // enabled, disabled, transient, or empty
	Fragment     string // path of the unit file
	Result       string // success, exit-code, signal, timeout, start-limit-hit, …
	MainPID      int
	Restarts     int
	ExitStatus   int
	Started      time.Time // of the last main process
	NeedsReload  bool
	StatusText   string
	ControlGroup string
}

// properties lists what a state is shown as, in systemd's own order where it matters to nobody.
func (s State) properties() [][2]string {
	started := ""
	if !s.Started.IsZero() {
		started = s.Started.UTC().Format("Mon 2006-01-02 15:04:05 MST")
	}
	reload := "no"
	if s.NeedsReload {
		reload = "yes"
	}
	return [][2]string{
		{"MainPID", fmt.Sprint(s.MainPID)}, {"Result", s.Result}, {"NRestarts", fmt.Sprint(s.Restarts)},
		{"ExecMainStartTimestamp", started}, {"ExecMainStatus", fmt.Sprint(s.ExitStatus)}, {"ControlGroup", s.ControlGroup},
		{"StatusText", s.StatusText}, {"Id", s.ID}, {"Description", s.Description}, {"LoadState", s.Load}, {"ActiveState", s.Active},
		{"SubState", s.Sub}, {"FragmentPath", s.Fragment}, {"UnitFileState", s.File}, {"NeedDaemonReload", reload},
	}
}

// Show renders what "systemctl show" says: all properties, or the wanted ones that there are. With bare, only the values.
func Show(states []State, want []string, bare bool) string {
	var b strings.Builder
	for i, s := range states {
		if i > 0 {
			b.WriteByte('\n')
		}
		for _, p := range s.properties() {
			switch {
			case len(want) > 0 && !slices.Contains(want, p[0]):
			case bare:
				b.WriteString(p[1] + "\n")
			default:
				b.WriteString(p[0] + "=" + p[1] + "\n")
			}
		}
	}
	return b.String()
}

// StatusPage renders what "systemctl status" says of a unit; log is the end of its log.
func StatusPage(s State, log string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "● %s - %s\n     Loaded: %s (%s; %s)\n     Active: %s (%s)", s.ID, s.Description, s.Load, s.Fragment, s.File, s.Active, s.Sub)
	if !s.Started.IsZero() {
		fmt.Fprintf(&b, " since %s", s.Started.Format("Mon 2006-01-02 15:04:05 MST"))
	}
	b.WriteByte('\n')
	if s.MainPID > 0 {
		fmt.Fprintf(&b, "   Main PID: %d\n", s.MainPID)
	}
	if s.StatusText != "" {
		fmt.Fprintf(&b, "     Status: %q\n", s.StatusText)
	}
	fmt.Fprintf(&b, "     CGroup: %s (the lab's supervisor; there is no systemd on this host)\n", s.ControlGroup)
	if log != "" {
		b.WriteString("\n" + log)
	}
	return b.String()
}
