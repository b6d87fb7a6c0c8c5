// Package supervisor stands in for systemd on hosts that cannot have it: it reads the unit files that the provider writes,
// keeps their services running, holds their log, and answers the few verbs of systemctl and journalctl that are asked for.
//
// Reading units, deciding on restarts' text and rendering answers is pure (unit.go, show.go, journal.go, command.go);
// manager.go and process.go run programs.
//
// What it does not do: sandboxing and limits of units are read over, ordering goes by Wants= and Requires= only, and
// nothing is started at "boot" that was not enabled.
package supervisor

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/systemd"
)

// Service is what a unit file says, as far as it is acted upon.
type Service struct {
	Description string
	Needs       []string // Wants= and Requires=: started before it, as far as they exist
	WantedBy    []string

	Type      string // simple, exec, notify or oneshot
	Exec      []string
	ExecPre   [][]string
	ExecPost  [][]string // after the service has stopped
	Env       []string
	User      string
	Group     string
	UMask     int
	Directory string // working directory

	StateDirectory   string // below /var/lib
	StateMode        uint32
	RuntimeDirectory string // below /run
	RuntimeMode      uint32
	PreserveRuntime  bool

	Restart      string // no, always, on-failure, …
	RestartDelay time.Duration
	StartLimit   bool // five starts in ten seconds
	StartTimeout time.Duration
	StopTimeout  time.Duration
	KillSignal   string
	OnlyMain     bool // KillMode=process or mixed: others are not sent KillSignal
}

// systemd's own defaults.
const (
	defaultTimeout = 90 * time.Second
	defaultDelay   = 100 * time.Millisecond
	startBurst     = 5
	startInterval  = 10 * time.Second
)

// ParseService reads the text of a service unit. Settings that are not acted upon are read over.
func ParseService(text string) (Service, error) {
	u, err := systemd.Parse(text)
	if err != nil {
		return Service{}, err
	}
	s := Service{
		Type: "simple", UMask: 0o022, StateMode: 0o755, RuntimeMode: 0o755, Restart: "no", RestartDelay: defaultDelay, StartLimit: true,
		StartTimeout: defaultTimeout, StopTimeout: defaultTimeout, KillSignal: "TERM",
	}
	for _, section := range u.Sections {
		for _, e := range section.Entries {
			if err := s.set(section.Name, e.Key, e.Value); err != nil {
				return Service{}, fmt.Errorf("%s=: %w", e.Key, err)
			}
		}
	}
	if len(s.Exec) == 0 {
		return Service{}, fmt.Errorf("the unit has no ExecStart=")
	}
	return s, nil
}

func (s *Service) set(section, key, value string) (err error) {
	switch section + "." + key {
	case "Unit.Description":
		s.Description = strings.ReplaceAll(value, "%%", "%")
	case "Unit.Wants", "Unit.Requires":
		s.Needs = append(s.Needs, strings.Fields(value)...)
	case "Unit.StartLimitIntervalSec":
		s.StartLimit = value != "0"
	case "Install.WantedBy":
		s.WantedBy = append(s.WantedBy, strings.Fields(value)...)
	case "Service.Type":
		s.Type = value
		switch value {
		case "simple", "exec", "notify", "oneshot":
		default:
			return fmt.Errorf("%q is not done here", value)
		}
	case "Service.ExecStart":
		s.Exec, err = command(value)
	case "Service.ExecStartPre":
		err = appendCommand(&s.ExecPre, value)
	case "Service.ExecStopPost":
		err = appendCommand(&s.ExecPost, value)
	case "Service.Environment":
		var words []string
		words, err = systemd.SplitValues(value)
		s.Env = append(s.Env, words...)
	case "Service.User":
		s.User = value
	case "Service.Group":
		s.Group = value
	case "Service.UMask":
		s.UMask, err = octal(value)
	case "Service.WorkingDirectory":
		s.Directory = value
	case "Service.StateDirectory":
		s.StateDirectory, err = below(value)
	case "Service.StateDirectoryMode":
		err = mode(&s.StateMode, value)
	case "Service.RuntimeDirectory":
		s.RuntimeDirectory, err = below(value)
	case "Service.RuntimeDirectoryMode":
		err = mode(&s.RuntimeMode, value)
	case "Service.RuntimeDirectoryPreserve":
		s.PreserveRuntime = value != "no"
	case "Service.Restart":
		s.Restart = value
	case "Service.RestartSec":
		s.RestartDelay, err = span(value)
	case "Service.TimeoutStartSec":
		s.StartTimeout, err = span(value)
	case "Service.TimeoutStopSec":
		s.StopTimeout, err = span(value)
	case "Service.KillSignal":
		s.KillSignal = strings.TrimPrefix(value, "SIG")
	case "Service.KillMode":
		s.OnlyMain = value == "process" || value == "mixed"
	}
	return err
}

func command(value string) ([]string, error) {
	argv, err := systemd.SplitExec(value)
	if err == nil && (len(argv) == 0 || !path.IsAbs(argv[0])) {
		err = fmt.Errorf("%.80q does not begin with an absolute path", value)
	}
	return argv, err
}

func appendCommand(list *[][]string, value string) error {
	argv, err := command(value)
	*list = append(*list, argv)
	return err
}

func octal(value string) (int, error) {
	n, err := strconv.ParseUint(value, 8, 12)
	return int(n), err
}

func mode(dst *uint32, value string) error {
	n, err := octal(value)
	*dst = uint32(n)
	return err
}

// below is a relative path that stays where it is put.
func below(value string) (string, error) {
	if value == "" || path.IsAbs(value) || path.Clean(value) != value || strings.HasPrefix(value, "..") {
		return "", fmt.Errorf("%.80q is not a relative path", value)
	}
	return value, nil
}

// span reads one time span: a number of seconds, or one with a unit.
func span(value string) (time.Duration, error) {
	if value == "infinity" {
		return 365 * 24 * time.Hour, nil
	}
	number := strings.TrimRight(value, "abcdefghijklmnopqrstuvwxyz")
	n, err := strconv.ParseFloat(number, 64)
	unit, ok := map[string]time.Duration{
		"": time.Second, "us": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "sec": time.Second,
		"m": time.Minute, "min": time.Minute, "h": time.Hour,
	}[value[len(number):]]
	if err != nil || !ok || n < 0 || n > 1e9 {
		return 0, fmt.Errorf("%.80q is no time span that is read here", value)
	}
	return time.Duration(n * float64(unit)), nil
}

// restarts reports whether a service that ended by itself is started again.
func (s Service) restarts(result string) bool {
	switch s.Restart {
	case "always":
		return true
	case "on-success":
		return result == "success"
	case "on-failure":
		return result != "success"
	case "on-abnormal":
		return result != "success" && result != "exit-code"
	case "on-abort":
		return result == "signal"
	}
	return false
}
