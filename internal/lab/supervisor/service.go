package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// unit is one unit of a manager. mu guards everything; job is held over a start or a stop, so that there is one at a time.
type unit struct {
	m    *Manager
	name string
	job  sync.Mutex

	mu        sync.Mutex
	text      string // of the file as it was read
	service   Service
	loaded    bool
	transient bool
	bad       error // why the file cannot be used

	active, sub string
	result      string
	process     Process
	ended       chan struct{} // closed when the process has ended and was dealt with
	status      int
	statusText  string
	started     time.Time
	restarts    int
	starts      []time.Time
	stopping    bool
	again       *time.Timer // the start that is due after RestartSec
}

// load reads the unit's file, unless it was read before and again is not wanted. Called with mu held.
func (u *unit) load(again bool) {
	idle := u.active == "inactive" && u.process == nil
	if u.transient || u.loaded && !again && !idle {
		return
	}
	text, err := os.ReadFile(u.m.file(u.name))
	if u.loaded && !again && !errors.Is(err, fs.ErrNotExist) {
		return // an idle unit is forgotten when its file is gone
	}
	if err != nil {
		u.loaded, u.text, u.bad = false, "", nil
		if !errors.Is(err, fs.ErrNotExist) {
			u.bad = err
		}
		return
	}
	u.text, u.loaded = string(text), true
	u.service, u.bad = ParseService(u.text)
}

// usable says why the unit cannot be started. Called with mu held.
func (u *unit) usable() error {
	switch {
	case u.bad != nil:
		return fmt.Errorf("unit %s has a bad unit file setting: %w", u.name, u.bad)
	case !u.loaded:
		return fmt.Errorf("failed to start %s: %w", u.name, &NotFoundError{u.name})
	}
	return nil
}

// state describes the unit. Called with mu held.
func (u *unit) state() State {
	s := State{
		ID: u.name, Description: u.service.Description, Load: "loaded", Active: u.active, Sub: u.sub, Result: u.result,
		Restarts: u.restarts, ExitStatus: u.status, Started: u.started, StatusText: u.statusText,
	}
	if u.process != nil {
		s.MainPID, s.ControlGroup = u.process.PID(), ControlGroup(u.name)
	}
	text, err := os.ReadFile(u.m.file(u.name))
	switch {
	case u.transient:
		s.File = "transient"
	case err == nil:
		s.Fragment, s.File = u.m.file(u.name), "disabled"
		s.NeedsReload = u.loaded && string(text) != u.text
		if links, _ := filepath.Glob(filepath.Join(u.m.c.UnitDir, "*.wants", u.name)); len(links) > 0 {
			s.File = "enabled"
		}
	case u.loaded:
		s.NeedsReload = true // it runs, and its file is gone
	}
	switch {
	case u.bad != nil:
		s.Load = "bad-setting"
	case !u.loaded:
		s.Load = "not-found"
	}
	if s.Description == "" {
		s.Description = u.name
	}
	return s
}

// ControlGroup is the group in which a unit's processes are.
func ControlGroup(unit string) string { return "/system.slice/" + unit }

// say writes what systemd would say of the unit.
func (u *unit) say(format string, args ...any) {
	u.m.c.Journal.Add(Line{Time: u.m.c.Now(), Unit: u.name, Ident: "systemd", PID: 1, Text: fmt.Sprintf(format, args...)})
}

func (u *unit) start(ctx context.Context) error {
	u.job.Lock()
	defer u.job.Unlock()
	u.mu.Lock()
	if u.active == "active" {
		u.mu.Unlock()
		return nil
	}
	if u.again != nil {
		u.again.Stop()
		u.again = nil
	}
	u.stopping = false
	u.mu.Unlock()
	return u.begin(ctx)
}

// begin starts the service. The job is held.
func (u *unit) begin(ctx context.Context) error {
	u.mu.Lock()
	s := u.service
	now := u.m.c.Now()
	if s.StartLimit {
		for len(u.starts) > 0 && now.Sub(u.starts[0]) > startInterval {
			u.starts = u.starts[1:]
		}
		if len(u.starts) >= startBurst {
			u.active, u.sub, u.result = "failed", "failed", "start-limit-hit"
			u.mu.Unlock()
			u.say("%s: Start request repeated too quickly.", u.name)
			return fmt.Errorf("job for %s failed: start request repeated too quickly", u.name)
		}
		u.starts = append(u.starts, now)
	}
	u.active, u.sub, u.result, u.statusText = "activating", "start", "success", ""
	u.mu.Unlock()
	u.say("Starting %s...", u.title())
	err := u.up(ctx, s)
	if err != nil {
		u.say("Failed to start %s.", u.title())
		return fmt.Errorf("job for %s failed: %w", u.name, err)
	}
	u.say("Started %s.", u.title())
	return nil
}

func (u *unit) title() string {
	if u.service.Description != "" {
		return u.name + " - " + u.service.Description
	}
	return u.name
}

// up runs the service's commands until it counts as started.
func (u *unit) up(ctx context.Context, s Service) error {
	c := u.m.c
	fail := func(result string, err error) error {
		u.mu.Lock()
		u.active, u.sub, u.result = "failed", "failed", result
		u.mu.Unlock()
		return err
	}
	env := append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "INVOCATION_ID=" + fmt.Sprintf("%032x", c.Now().UnixNano()),
	}, s.Env...)
	if s.User != "" {
		env = append(env, "USER="+s.User, "LOGNAME="+s.User)
	}
	for _, d := range []struct {
		top, name, variable string
		mode                uint32
	}{{c.StateDir, s.StateDirectory, "STATE_DIRECTORY", s.StateMode}, {c.RunDir, s.RuntimeDirectory, "RUNTIME_DIRECTORY", s.RuntimeMode}} {
		if d.name == "" {
			continue
		}
		dir := filepath.Join(d.top, d.name)
		if err := u.folder(dir, d.mode, s); err != nil {
			u.say("%s: Failed to set up %s: %v", u.name, dir, err)
			return fail("resources", err)
		}
		env = append(env, d.variable+"="+dir)
	}
	socket, messages, closeSocket, err := c.Notify(u.name)
	if err != nil {
		return fail("resources", err)
	}
	if s.Type == "notify" {
		env = append(env, "NOTIFY_SOCKET="+socket)
	}
	launch := func(argv []string) (Process, error) {
		ident := filepath.Base(argv[0])
		return c.Launch(Launch{
			Unit: u.name, Argv: argv, Env: env, User: s.User, Group: s.Group, UMask: s.UMask, Directory: s.Directory,
			Line: func(pid int, text string) {
				c.Journal.Add(Line{Time: c.Now(), Unit: u.name, Ident: ident, PID: pid, Text: text})
			},
		})
	}
	for _, argv := range s.ExecPre {
		p, err := launch(argv)
		if err == nil {
			if e := p.Wait(); e.Result() != "success" {
				err = fmt.Errorf("%s: %s, status %d%s", argv[0], e.Result(), e.Status, e.Signal)
			}
		}
		if err != nil {
			closeSocket()
			u.say("%s: Control process failed: %v", u.name, err)
			return fail("exit-code", err)
		}
	}
	p, err := launch(s.Exec)
	if err != nil {
		closeSocket()
		u.say("%s: Failed at step EXEC spawning %s: %v", u.name, s.Exec[0], err)
		u.mu.Lock()
		u.started, u.status = c.Now(), 203
		u.mu.Unlock()
		return fail("exit-code", err)
	}
	ended := make(chan struct{})
	ready := make(chan struct{})
	u.mu.Lock()
	u.process, u.ended, u.started, u.status = p, ended, c.Now(), 0
	if s.Type == "simple" || s.Type == "exec" {
		u.active, u.sub = "active", "running"
	}
	u.mu.Unlock()
	go u.listen(messages, ready)
	go func() {
		exit := p.Wait()
		closeSocket()
		u.over(s, p, exit)
		close(ended)
	}()
	return u.wait(ctx, s, p, ready, ended)
}

// folder makes a state or runtime folder; what is above it is anybody's to enter.
func (u *unit) folder(dir string, mode uint32, s Service) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(dir, fs.FileMode(mode)); err != nil {
		return err
	}
	if s.User == "" && s.Group == "" {
		return nil
	}
	return u.m.c.Chown(dir, s.User, s.Group)
}

// listen takes the service's messages until its socket is closed.
func (u *unit) listen(messages <-chan map[string]string, ready chan struct{}) {
	once := sync.OnceFunc(func() { close(ready) })
	for msg := range messages {
		if text, ok := msg["STATUS"]; ok {
			u.mu.Lock()
			u.statusText = text
			u.mu.Unlock()
		}
		if msg["READY"] == "1" {
			once()
		}
	}
}

// wait waits until a service that was started counts as up.
func (u *unit) wait(ctx context.Context, s Service, p Process, ready, ended chan struct{}) error {
	if s.Type == "simple" || s.Type == "exec" {
		return nil
	}
	timeout := time.NewTimer(s.StartTimeout)
	defer timeout.Stop()
	select {
	case <-ready:
		u.mu.Lock()
		if u.process == p {
			u.active, u.sub = "active", "running"
		}
		u.mu.Unlock()
		return nil
	case <-ended:
		u.mu.Lock()
		defer u.mu.Unlock()
		if s.Type == "oneshot" && u.result == "success" {
			return nil
		}
		return fmt.Errorf("its process ended (%s, status %d) before it was ready", u.result, u.status)
	case <-timeout.C:
		u.say("%s: start operation timed out. Terminating.", u.name)
		u.mu.Lock()
		u.result = "timeout"
		u.mu.Unlock()
	case <-ctx.Done():
	}
	_ = p.Signal("KILL", true)
	<-ended
	return errors.New("it was not ready in time")
}

// over deals with the end of the main process.
func (u *unit) over(s Service, p Process, exit Exit) {
	_ = p.Signal("KILL", true) // what it left behind
	how := fmt.Sprintf("code=exited, status=%d", exit.Status)
	if exit.Signal != "" {
		how = fmt.Sprintf("code=killed, status=%s", exit.Signal)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	result := exit.Result()
	if u.result == "timeout" {
		result = "timeout"
	}
	if u.stopping && exit.Signal != "" {
		result = "success"
	}
	u.process, u.result, u.status, u.statusText = nil, result, exit.Status, ""
	if !u.stopping || result != "success" {
		u.say("%s: Main process exited, %s", u.name, how)
	}
	for _, argv := range s.ExecPost {
		if post, err := u.m.c.Launch(Launch{Unit: u.name, Argv: argv, Env: s.Env, User: s.User, Group: s.Group, UMask: s.UMask, Line: func(int, string) {}}); err == nil {
			post.Wait()
		}
	}
	if s.RuntimeDirectory != "" && !s.PreserveRuntime {
		_ = os.RemoveAll(filepath.Join(u.m.c.RunDir, s.RuntimeDirectory))
	}
	u.active, u.sub = "inactive", "dead"
	if result != "success" {
		u.active, u.sub = "failed", "failed"
		u.say("%s: Failed with result '%s'.", u.name, result)
	}
	if u.transient { // systemd-run --collect
		u.transient, u.loaded, u.active, u.sub = false, false, "inactive", "dead"
		return
	}
	if !u.stopping && s.Type != "oneshot" && s.restarts(result) {
		u.active, u.sub = "activating", "auto-restart"
		u.again = time.AfterFunc(s.RestartDelay, u.restart)
	}
}

// restart starts a service again that ended by itself.
func (u *unit) restart() {
	u.job.Lock()
	defer u.job.Unlock()
	u.mu.Lock()
	if u.stopping || u.again == nil || u.sub != "auto-restart" {
		u.mu.Unlock()
		return
	}
	u.again = nil
	u.restarts++
	n := u.restarts
	u.mu.Unlock()
	u.say("%s: Scheduled restart job, restart counter is at %d.", u.name, n)
	_ = u.begin(context.Background()) // its log says why not, and it tries again
}

func (u *unit) stop(ctx context.Context) error {
	u.mu.Lock()
	u.stopping = true
	if u.again != nil {
		u.again.Stop()
		u.again = nil
	}
	p, ended, s := u.process, u.ended, u.service
	if p == nil {
		if u.active == "activating" {
			u.active, u.sub = "inactive", "dead"
		}
		u.mu.Unlock()
		return nil
	}
	u.active, u.sub = "deactivating", "stop-sigterm"
	u.mu.Unlock()
	u.say("Stopping %s...", u.title())
	_ = p.Signal(strings.ToUpper(s.KillSignal), !s.OnlyMain)
	timeout := time.NewTimer(s.StopTimeout)
	defer timeout.Stop()
	select {
	case <-ended:
	case <-timeout.C:
		u.say("%s: State 'stop-sigterm' timed out. Killing.", u.name)
		_ = p.Signal("KILL", true)
		<-ended
	case <-ctx.Done():
		_ = p.Signal("KILL", true)
		<-ended
	}
	u.say("Stopped %s.", u.title())
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.active != "failed" {
		u.active, u.sub = "inactive", "dead"
	}
	return nil
}
