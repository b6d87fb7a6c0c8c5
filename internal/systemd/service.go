package systemd

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Service is a service unit as the provider writes them. Zero values leave systemd's defaults, except where said.
type Service struct {
	Description   string
	Documentation string
	After         []string
	Wants         []string
	Requires      []string
	PartOf        []string
	WantedBy      []string // default multi-user.target

	Type         string // simple, exec, notify, oneshot; default exec
	Exec         []string
	ExecStartPre [][]string
	ExecStopPost [][]string
	Environment  map[string]string

	User                string
	Group               string
	SupplementaryGroups []string
	UMask               string // octal digits
	WorkingDirectory    string

	StateDirectory           string // below /var/lib
	StateDirectoryMode       string // octal digits
	RuntimeDirectory         string // below /run
	RuntimeDirectoryMode     string // octal digits
	RuntimeDirectoryPreserve string // no, yes, restart

	Restart                string        // default always
	RestartSec             time.Duration //nolint:staticcheck // named as systemd names it; default 1 s
	WatchdogSec            time.Duration //nolint:staticcheck // named as systemd names it
	TimeoutStartSec        time.Duration //nolint:staticcheck // named as systemd names it
	TimeoutStopSec         time.Duration //nolint:staticcheck // named as systemd names it
	KillMode               string
	KillSignal             string
	FileDescriptorStoreMax int // with it, descriptors are kept over restarts
	NoStartLimit           bool

	LimitMEMLOCK string // bytes or "infinity"
	LimitNOFILE  int
	TasksMax     string
	OOMScore     int // OOMScoreAdjust; 0 leaves the default
	Nice         int

	Hardening Hardening
}

// Hardening says what a service may not do. The zero value hardens nothing; start from [Strict].
type Hardening struct {
	NoNewPrivileges         bool
	ProtectSystem           string // strict, full, yes
	ProtectHome             bool
	PrivateTmp              bool
	PrivateDevices          bool // not for engines: they need the accelerators
	ProtectKernel           bool // tunables, modules, logs, control groups, clock, hostname
	ProtectProc             bool
	RestrictNamespaces      bool
	RestrictRealtime        bool
	RestrictSUIDSGID        bool
	LockPersonality         bool
	MemoryDenyWriteExecute  bool // not for just-in-time compilers
	RemoveIPC               bool
	DropCapabilities        bool // CapabilityBoundingSet= and AmbientCapabilities= of Capabilities
	Capabilities            []string
	RestrictAddressFamilies []string
	SystemCallFilter        []string // one setting each
	ReadWritePaths          []string
	ReadOnlyPaths           []string
	InaccessiblePaths       []string
}

// Strict is the template for daemons that need network and their own directories only.
func Strict() Hardening {
	return Hardening{
		NoNewPrivileges: true, ProtectSystem: "strict", ProtectHome: true, PrivateTmp: true, PrivateDevices: true,
		ProtectKernel: true, ProtectProc: true, RestrictNamespaces: true, RestrictRealtime: true, RestrictSUIDSGID: true,
		LockPersonality: true, MemoryDenyWriteExecute: true, RemoveIPC: true, DropCapabilities: true,
		RestrictAddressFamilies: []string{"AF_UNIX", "AF_INET", "AF_INET6"},
		SystemCallFilter:        []string{"@system-service", "~@privileged"},
	}
}

// builder collects entries and the first error.
type builder struct {
	entries []Entry
	err     error
}

func (b *builder) raw(key, value string) {
	if value != "" {
		b.entries = append(b.entries, Entry{key, value})
	}
}

func (b *builder) fail(key string, err error) {
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("%s=: %w", key, err)
	}
}

func (b *builder) text(key, s string) {
	v, err := Text(s)
	b.fail(key, err)
	b.raw(key, v)
}

// token is a value of one plain word: a keyword, a number, a name.
func (b *builder) token(key, s string) {
	if strings.ContainsAny(s, " \t\n\"'\\%$;") {
		b.fail(key, fmt.Errorf("%.80q is not one plain word", s))
	}
	b.text(key, s)
}

func (b *builder) words(key string, list []string) {
	var out []string
	for _, s := range list {
		w, err := QuoteValue(s)
		b.fail(key, err)
		out = append(out, w)
	}
	b.raw(key, strings.Join(out, " "))
}

func (b *builder) exec(key string, argv []string) {
	if len(argv) > 0 {
		v, err := Exec(argv)
		b.fail(key, err)
		b.raw(key, v)
	}
}

func (b *builder) yes(key string, on bool) {
	if on {
		b.raw(key, "yes")
	}
}

func (b *builder) span(key string, d time.Duration) {
	if d > 0 {
		b.raw(key, strconv.FormatInt(d.Milliseconds(), 10)+"ms")
	}
}

func (b *builder) number(key string, n int) {
	if n != 0 {
		b.raw(key, strconv.Itoa(n))
	}
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// Unit makes the unit. An error names the setting.
func (s Service) Unit() (Unit, error) {
	var unit, svc, inst builder
	unit.text("Description", s.Description)
	unit.text("Documentation", s.Documentation)
	unit.words("After", s.After)
	unit.words("Wants", s.Wants)
	unit.words("Requires", s.Requires)
	unit.words("PartOf", s.PartOf)
	if s.NoStartLimit {
		unit.raw("StartLimitIntervalSec", "0")
	}
	if len(s.Exec) == 0 {
		svc.fail("ExecStart", fmt.Errorf("service has no command"))
	}
	svc.token("Type", or(s.Type, "exec"))
	for _, argv := range s.ExecStartPre {
		svc.exec("ExecStartPre", argv)
	}
	svc.exec("ExecStart", s.Exec)
	for _, argv := range s.ExecStopPost {
		svc.exec("ExecStopPost", argv)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Environment)) {
		if !envName(k) {
			svc.fail("Environment", fmt.Errorf("variable name %.80q is not valid", k))
		}
		svc.words("Environment", []string{k + "=" + s.Environment[k]})
	}
	svc.token("User", s.User)
	svc.token("Group", s.Group)
	svc.words("SupplementaryGroups", s.SupplementaryGroups)
	svc.token("UMask", s.UMask)
	svc.text("WorkingDirectory", s.WorkingDirectory)
	svc.token("StateDirectory", s.StateDirectory)
	svc.token("StateDirectoryMode", s.StateDirectoryMode)
	svc.token("RuntimeDirectory", s.RuntimeDirectory)
	svc.token("RuntimeDirectoryMode", s.RuntimeDirectoryMode)
	svc.token("RuntimeDirectoryPreserve", s.RuntimeDirectoryPreserve)
	svc.token("Restart", or(s.Restart, "always"))
	svc.span("RestartSec", max(s.RestartSec, 0))
	if s.RestartSec == 0 {
		svc.span("RestartSec", time.Second)
	}
	svc.span("WatchdogSec", s.WatchdogSec)
	svc.span("TimeoutStartSec", s.TimeoutStartSec)
	svc.span("TimeoutStopSec", s.TimeoutStopSec)
	svc.token("KillMode", s.KillMode)
	svc.token("KillSignal", s.KillSignal)
	svc.number("FileDescriptorStoreMax", s.FileDescriptorStoreMax)
	svc.token("LimitMEMLOCK", s.LimitMEMLOCK)
	svc.number("LimitNOFILE", s.LimitNOFILE)
	svc.token("TasksMax", s.TasksMax)
	svc.number("OOMScoreAdjust", s.OOMScore)
	svc.number("Nice", s.Nice)
	s.Hardening.render(&svc)
	inst.words("WantedBy", s.WantedBy)
	if len(s.WantedBy) == 0 {
		inst.raw("WantedBy", "multi-user.target")
	}
	for _, b := range []*builder{&unit, &svc, &inst} {
		if b.err != nil {
			return Unit{}, b.err
		}
	}
	return Unit{Sections: []Section{{"Unit", unit.entries}, {"Service", svc.entries}, {"Install", inst.entries}}}, nil
}

func (h Hardening) render(b *builder) {
	b.yes("NoNewPrivileges", h.NoNewPrivileges)
	b.token("ProtectSystem", h.ProtectSystem)
	b.yes("ProtectHome", h.ProtectHome)
	b.yes("PrivateTmp", h.PrivateTmp)
	b.yes("PrivateDevices", h.PrivateDevices)
	for _, k := range []string{"ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups", "ProtectClock", "ProtectHostname"} {
		b.yes(k, h.ProtectKernel)
	}
	if h.ProtectProc {
		b.raw("ProtectProc", "invisible")
	}
	b.yes("RestrictNamespaces", h.RestrictNamespaces)
	b.yes("RestrictRealtime", h.RestrictRealtime)
	b.yes("RestrictSUIDSGID", h.RestrictSUIDSGID)
	b.yes("LockPersonality", h.LockPersonality)
	b.yes("MemoryDenyWriteExecute", h.MemoryDenyWriteExecute)
	b.yes("RemoveIPC", h.RemoveIPC)
	if h.DropCapabilities {
		caps := strings.Join(h.Capabilities, " ")
		b.entries = append(b.entries, Entry{"CapabilityBoundingSet", caps}, Entry{"AmbientCapabilities", caps})
	}
	b.words("RestrictAddressFamilies", h.RestrictAddressFamilies)
	if len(h.SystemCallFilter) > 0 {
		b.raw("SystemCallArchitectures", "native")
		b.raw("SystemCallErrorNumber", "EPERM") // a refused call is an error the program can report, not its death
	}
	for _, f := range h.SystemCallFilter {
		b.text("SystemCallFilter", f)
	}
	b.words("ReadWritePaths", h.ReadWritePaths)
	b.words("ReadOnlyPaths", h.ReadOnlyPaths)
	b.words("InaccessiblePaths", h.InaccessiblePaths)
}

func envName(s string) bool {
	for i, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '_' && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

// Render writes the whole unit file: the owner's stamp and the unit.
func (s Service) Render(o Owner) (string, error) {
	u, err := s.Unit()
	if err != nil {
		return "", err
	}
	body, err := u.Render()
	if err != nil {
		return "", err
	}
	return o.Stamp(body)
}
