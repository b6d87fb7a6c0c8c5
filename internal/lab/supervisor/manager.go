package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Launcher starts one program as a unit's main process, in a session of its own. It returns when the program runs.
type Launcher func(Launch) (Process, error)

// Launch is one program to start.
type Launch struct {
	Unit      string
	Argv      []string
	Env       []string
	User      string
	Group     string
	UMask     int
	Directory string
	Line      func(pid int, text string) // takes what it prints, a line each
}

// Process is a program that was started.
type Process interface {
	PID() int
	// Wait waits until it has ended and everything that it printed was taken.
	Wait() Exit
	// Signal sends a signal by name to the program, or to everything of its session.
	Signal(name string, all bool) error
}

// Exit says how a program ended.
type Exit struct {
	Status int
	Signal string // empty: it exited
}

// Result is systemd's word for it.
func (e Exit) Result() string {
	switch {
	case e.Signal != "":
		return "signal"
	case e.Status != 0:
		return "exit-code"
	}
	return "success"
}

// Config is what a manager needs of its host.
type Config struct {
	UnitDir  string // where unit files lie
	StateDir string // /var/lib
	RunDir   string // /run
	Launch   Launcher
	// Chown gives a folder to a user and group by name.
	Chown func(name, user, group string) error
	// Notify opens a socket for the messages of one start of a service. Its path and a channel of its messages come back.
	Notify  func(unit string) (path string, messages <-chan map[string]string, end func(), err error)
	Journal *Journal
	Now     func() time.Time
}

// Manager keeps the services of a host.
type Manager struct {
	c Config

	mu    sync.Mutex
	units map[string]*unit
}

// New makes a manager that knows no unit yet.
func New(c Config) *Manager { return &Manager{c: c, units: map[string]*unit{}} }

// NotFoundError says that there is no such unit.
type NotFoundError struct{ Unit string }

// Error says it as systemctl does.
func (e *NotFoundError) Error() string { return fmt.Sprintf("Unit %s not found.", e.Unit) }

// Boot starts every enabled unit.
func (m *Manager) Boot(ctx context.Context) {
	for _, name := range m.names() {
		if m.State(name).File == "enabled" {
			_ = m.Start(ctx, name) // its log says why not
		}
	}
}

// get returns the unit of a name, known or not. Called without the lock of the unit.
func (m *Manager) get(name string) *unit {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.units[name]
	if u == nil {
		u = &unit{m: m, name: name, active: "inactive", sub: "dead", result: "success"}
		m.units[name] = u
	}
	return u
}

func (m *Manager) file(name string) string { return filepath.Join(m.c.UnitDir, name) }

// Reload reads all unit files again.
func (m *Manager) Reload() {
	m.mu.Lock()
	all := make([]*unit, 0, len(m.units))
	for _, u := range m.units {
		all = append(all, u)
	}
	m.mu.Unlock()
	for _, u := range all {
		u.mu.Lock()
		u.load(true)
		u.mu.Unlock()
	}
}

// State says what there is to say of a unit.
func (m *Manager) State(name string) State {
	u := m.get(name)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.load(false)
	return u.state()
}

// Run makes a unit of a text that lies in no file, and starts it. It is forgotten when it has ended.
func (m *Manager) Run(ctx context.Context, name, text string) error {
	s, err := ParseService(text)
	if err != nil {
		return err
	}
	u := m.get(name)
	u.mu.Lock()
	u.load(false)
	if u.loaded {
		u.mu.Unlock()
		return fmt.Errorf("unit %s was already loaded or has a fragment file", name)
	}
	u.service, u.loaded, u.transient, u.bad = s, true, true, nil
	u.mu.Unlock()
	return m.Start(ctx, name)
}

// Start starts a unit and what it needs, and returns when it is up.
func (m *Manager) Start(ctx context.Context, name string) error {
	u := m.get(name)
	u.mu.Lock()
	u.load(false)
	if err := u.usable(); err != nil {
		u.mu.Unlock()
		return err
	}
	needs := u.service.Needs
	u.mu.Unlock()
	for _, need := range needs {
		if s := m.State(need); need != name && s.Load == "loaded" && s.Active == "inactive" {
			go func() { _ = m.Start(context.WithoutCancel(ctx), need) }() // its log says why not
		}
	}
	return u.start(ctx)
}

// Stop stops a unit and returns when nothing of it runs.
func (m *Manager) Stop(ctx context.Context, name string) error {
	u := m.get(name)
	u.mu.Lock()
	u.load(false)
	known := u.loaded || u.active != "inactive"
	u.mu.Unlock()
	if !known {
		return fmt.Errorf("failed to stop %s: %w", name, &NotFoundError{name})
	}
	return u.stop(ctx)
}

// Restart stops and starts a unit.
func (m *Manager) Restart(ctx context.Context, name string) error {
	u := m.get(name)
	u.mu.Lock()
	u.load(false)
	err := u.usable()
	u.mu.Unlock()
	if err != nil {
		return err
	}
	if err := u.stop(ctx); err != nil {
		return err
	}
	return m.Start(ctx, name)
}

// ResetFailed forgets a unit's failures.
func (m *Manager) ResetFailed(name string) error {
	u := m.get(name)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.load(false)
	if !u.loaded && u.active == "inactive" {
		return fmt.Errorf("failed to reset failed state of unit %s: %w", name, &NotFoundError{name})
	}
	if u.active == "failed" {
		u.active, u.sub, u.result = "inactive", "dead", "success"
	}
	u.starts, u.restarts = nil, 0
	return nil
}

// Kill sends a signal to everything of a unit.
func (m *Manager) Kill(name, signal string) error {
	u := m.get(name)
	u.mu.Lock()
	p := u.process
	u.mu.Unlock()
	if p == nil {
		return fmt.Errorf("failed to kill unit %s: it does not run", name)
	}
	return p.Signal(signal, true)
}

// Enable makes the links by which a unit starts at boot; Disable removes them.
func (m *Manager) Enable(name string) error {
	u := m.get(name)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.load(false)
	if err := u.usable(); err != nil {
		return err
	}
	for _, target := range u.service.WantedBy {
		dir := m.file(target + ".wants")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.Symlink(m.file(name), filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// Disable removes the links by which a unit starts at boot.
func (m *Manager) Disable(name string) error {
	links, err := filepath.Glob(filepath.Join(m.c.UnitDir, "*.wants", name))
	if err != nil {
		return err
	}
	if _, err := os.Lstat(m.file(name)); err != nil && len(links) == 0 {
		return fmt.Errorf("failed to disable unit: Unit file %s does not exist", name)
	}
	for _, l := range links {
		if err := os.Remove(l); err != nil {
			return err
		}
		_ = os.Remove(filepath.Dir(l)) // not empty: others are wanted there
	}
	return nil
}

// names lists the units that have a file or are known to run, sorted.
func (m *Manager) names() []string {
	var names []string
	entries, _ := os.ReadDir(m.c.UnitDir) // a folder that is not there has no units
	for _, e := range entries {
		if path.Ext(e.Name()) == ".service" {
			names = append(names, e.Name())
		}
	}
	m.mu.Lock()
	for name := range m.units {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	m.mu.Unlock()
	slices.Sort(names)
	return names
}

// List gives the states of all loaded units whose name matches one of the patterns; no pattern matches all.
func (m *Manager) List(patterns []string) []State {
	var list []State
	for _, name := range m.names() {
		s := m.State(name)
		if s.Load == "not-found" && s.Active == "inactive" {
			continue
		}
		if len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { ok, err := path.Match(p, name); return ok && err == nil }) {
			list = append(list, s)
		}
	}
	return list
}

// End stops everything, at once.
func (m *Manager) End(ctx context.Context) {
	var wg sync.WaitGroup
	for _, name := range m.names() {
		wg.Go(func() { _ = m.Stop(ctx, name) })
	}
	wg.Wait()
}
