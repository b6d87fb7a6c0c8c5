package systemd

import (
	"fmt"
	"strconv"
	"strings"
)

// Show is what "systemctl show" says about one unit.
type Show struct {
	ID               string
	LoadState        string // loaded, not-found, masked, error, …
	ActiveState      string // active, inactive, failed, activating, …
	SubState         string
	UnitFileState    string // enabled, disabled, static, …, or ""
	FragmentPath     string
	Result           string // success, exit-code, signal, timeout, watchdog, …
	MainPID          int    // 0 without a process
	NRestarts        int
	ExecMainStatus   int
	NeedDaemonReload bool
}

// Found reports whether systemd knows the unit.
func (s Show) Found() bool { return s.LoadState != "not-found" }

// Active reports whether the unit is up.
func (s Show) Active() bool { return s.ActiveState == "active" }

// Enabled reports whether the unit starts at boot.
func (s Show) Enabled() bool { return s.UnitFileState == "enabled" }

// ParseShow reads the output of "systemctl show" for one or more units: lines KEY=VALUE, units apart by an empty line.
// Unknown keys are skipped. A block without LoadState or ActiveState is an error, since then nothing is known.
func ParseShow(text string) ([]Show, error) {
	var out []Show
	var cur Show
	seen := map[string]bool{}
	flush := func() error {
		if len(seen) == 0 {
			return nil
		}
		if !seen["LoadState"] || !seen["ActiveState"] {
			return fmt.Errorf("unit %q: systemctl show gave no LoadState or ActiveState", cur.ID)
		}
		out = append(out, cur)
		cur, seen = Show{}, map[string]bool{}
		return nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			if err := flush(); err != nil {
				return nil, err
			}
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, fmt.Errorf("line %.80q of systemctl show is not KEY=VALUE", line)
		}
		seen[key] = true
		if err := cur.set(key, value); err != nil {
			return nil, err
		}
	}
	return out, flush()
}

func (s *Show) set(key, value string) error {
	number := func(dst *int) error {
		if value == "" || value == "[not set]" {
			return nil
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("%s of systemctl show: %w", key, err)
		}
		*dst = n
		return nil
	}
	switch key {
	case "Id":
		s.ID = value
	case "LoadState":
		s.LoadState = value
	case "ActiveState":
		s.ActiveState = value
	case "SubState":
		s.SubState = value
	case "UnitFileState":
		s.UnitFileState = value
	case "FragmentPath":
		s.FragmentPath = value
	case "Result":
		s.Result = value
	case "MainPID":
		return number(&s.MainPID)
	case "NRestarts":
		return number(&s.NRestarts)
	case "ExecMainStatus":
		return number(&s.ExecMainStatus)
	case "NeedDaemonReload":
		s.NeedDaemonReload = value == "yes"
	}
	return nil
}
