package sshtest

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// Program stands in for a program on a machine.
type Program func(args []string, stdin io.Reader) (stdout, stderr string, exit int)

// Entry is a file or a directory of a machine.
type Entry struct {
	Content []byte
	Mode    uint32
	Owner   string
	Group   string
	Dir     bool
}

// Unit is a systemd unit of a machine. Its file is the entry /etc/systemd/system/<name>.
type Unit struct {
	Active    string // active, inactive, failed
	Enabled   bool
	MainPID   int
	NRestarts int
	Starts    int // how often it was started or restarted

	loaded []byte // the file as systemd last read it
}

// Call is one verb that a machine was asked for.
type Call struct {
	Verb string // as in internal/host/scripts, or the program's name
	Args []string
}

// Machine is a host in memory. It answers the scripts of package host as a Debian with systemd would, and nothing else.
// Set its exported fields before it is used; everything else through methods, at any time.
type Machine struct {
	// Management answers "moaid dial"; nil means that the daemon does not run.
	Management http.Handler
	// OnUnit is called when a unit starts ("start") or stops ("stop"), before the state changes; an error from a start
	// leaves the unit failed. It may use the machine's methods.
	OnUnit func(event, unit string) error
	// NoSudo makes sudo refuse; SudoPassword makes it ask.
	NoSudo       bool
	SudoPassword string

	t TB

	mu       sync.Mutex
	now      func() time.Time
	files    map[string]*Entry
	users    map[string]string // name → primary group
	groups   map[string]bool
	units    map[string]*Unit
	programs map[string]Program
	probe    map[string]ProbeSection
	calls    []Call
	failures map[string][]Reply
	left     int // writes until the machine does nothing any more; 0 means that it goes on
	cut      bool
	lock     struct {
		token, owner string
		fence        int64
		beat         time.Time
	}
	fence int64
	pids  int
}

// NewMachine makes a machine with root, an empty /etc/systemd/system and a probe of a plain Debian without accelerators.
func NewMachine(t TB) *Machine {
	m := &Machine{
		t: t, now: time.Now, files: map[string]*Entry{}, users: map[string]string{"root": "root"}, groups: map[string]bool{"root": true},
		units: map[string]*Unit{}, programs: map[string]Program{}, probe: map[string]ProbeSection{}, failures: map[string][]Reply{}, pids: 1000,
	}
	for _, d := range []string{"/etc", "/etc/systemd", "/etc/systemd/system", "/opt", "/var", "/var/lib", "/run", "/usr", "/usr/local", "/usr/local/bin"} {
		m.files[d] = &Entry{Mode: 0o755, Owner: "root", Group: "root", Dir: true}
	}
	m.SetProbe(plainProbe())
	return m
}

// Serve starts an SSH server for the machine.
func (m *Machine) Serve() *Server { return New(m.t, m.Handle) }

// File returns a copy of a file or directory.
func (m *Machine) File(name string) (Entry, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.files[name]
	if !ok {
		return Entry{}, false
	}
	c := *e
	c.Content = slices.Clone(e.Content)
	return c, true
}

// Files lists all paths, sorted.
func (m *Machine) Files() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.files))
}

// SetFile writes a file behind the provider's back.
func (m *Machine) SetFile(name string, e Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(name, e)
}

// Remove removes a file or tree behind the provider's back.
func (m *Machine) Remove(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removeTree(name)
}

// Unit returns a copy of a unit's state. ok is false for a unit without a file.
func (m *Machine) Unit(name string) (Unit, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.files[unitPath(name)]; !ok {
		return Unit{}, false
	}
	return *m.unit(name), true
}

// SetUnit changes a unit's state behind the provider's back: the function gets the state to change.
func (m *Machine) SetUnit(name string, f func(u *Unit)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.unit(name))
}

// User returns a user's primary group.
func (m *Machine) User(name string) (group string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	group, ok = m.users[name]
	return group, ok
}

// SetUser makes a user with a primary group, as somebody else would.
func (m *Machine) SetUser(name, group string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users[name], m.groups[group] = group, true
}

// Group reports whether there is a group.
func (m *Machine) Group(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.groups[name]
}

// SetProgram gives the machine a program. name is a path, or a base name that stands for any path.
func (m *Machine) SetProgram(name string, p Program) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.programs[name] = p
}

// FailNext makes the next call of a verb fail with a reply, before it does anything. Several calls queue up.
func (m *Machine) FailNext(verb string, r Reply) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failures[verb] = append(m.failures[verb], r)
}

// CutAfter lets n more calls change something; then every such call, and every one about the lock, fails until [Machine.Mend].
// So it looks to a machine when the run that changes it is killed.
func (m *Machine) CutAfter(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left, m.cut = n+1, n == 0
}

// Mend ends what CutAfter did and reports whether it had come to the cut. The lock of the run that was cut off is old then.
func (m *Machine) Mend() (wasCut bool) {
	m.mu.Lock()
	wasCut, m.left, m.cut = m.cut, 0, false
	m.mu.Unlock()
	m.Advance(time.Hour)
	return wasCut
}

// Calls are the verbs and programs asked for so far.
func (m *Machine) Calls() []Call {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

// reads are the verbs that change nothing.
var reads = []string{"become", "inspect", "read-file", "probe", "journal", "lock", "accounts", "list-dir"}

// Writes are the calls so far that may change something.
func (m *Machine) Writes() []Call {
	var out []Call
	for _, c := range m.Calls() {
		if !slices.Contains(reads, c.Verb) {
			out = append(out, c)
		}
	}
	return out
}

// Advance moves the machine's clock, by which locks age.
func (m *Machine) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now
	m.now = func() time.Time { return now().Add(d) }
}

// LockOwner is who holds the machine's lock, or "".
func (m *Machine) LockOwner() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lock.owner
}

// SetLock makes somebody else hold the lock, with a last sign of life age ago.
func (m *Machine) SetLock(owner string, age time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fence++
	m.lock.token, m.lock.owner, m.lock.fence, m.lock.beat = "other-"+owner, owner, m.fence, m.now().Add(-age)
}

func unitPath(name string) string { return "/etc/systemd/system/" + name }

// The rest is called with the mutex held.

func (m *Machine) put(name string, e Entry) {
	for d := path.Dir(name); d != "/"; d = path.Dir(d) {
		if _, ok := m.files[d]; !ok {
			m.files[d] = &Entry{Mode: 0o755, Owner: "root", Group: "root", Dir: true}
		}
	}
	if e.Mode == 0 {
		e.Mode = 0o644
	}
	if e.Owner == "" {
		e.Owner = "root"
	}
	if e.Group == "" {
		e.Group = "root"
	}
	m.files[name] = &e
}

func (m *Machine) removeTree(name string) {
	for p := range m.files {
		if p == name || strings.HasPrefix(p, name+"/") {
			delete(m.files, p)
		}
	}
}

func (m *Machine) unit(name string) *Unit {
	u, ok := m.units[name]
	if !ok {
		u = &Unit{Active: "inactive"}
		m.units[name] = u
	}
	if e, ok := m.files[unitPath(name)]; ok && u.loaded == nil {
		u.loaded = slices.Clone(e.Content)
	}
	return u
}

func (m *Machine) show(name string) string {
	e, ok := m.files[unitPath(name)]
	u := m.unit(name)
	load, file, fragment := "loaded", "disabled", unitPath(name)
	if !ok {
		load, file, fragment = "not-found", "", ""
		if u.Active == "active" {
			load = "loaded" // a unit whose file went away stays loaded while it runs
		}
	}
	if u.Enabled {
		file = "enabled"
	}
	sub, result := map[string]string{"active": "running", "inactive": "dead", "failed": "failed"}[u.Active], "success"
	if u.Active == "failed" {
		result = "exit-code"
	}
	reload := "no"
	if ok && string(e.Content) != string(u.loaded) {
		reload = "yes"
	}
	return fmt.Sprintf("Id=%s\nLoadState=%s\nActiveState=%s\nSubState=%s\nMainPID=%d\nNRestarts=%d\nUnitFileState=%s\nNeedDaemonReload=%s\nFragmentPath=%s\nResult=%s\nExecMainStatus=0\n",
		name, load, u.Active, sub, u.MainPID, u.NRestarts, file, reload, fragment, result)
}
