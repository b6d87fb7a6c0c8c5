package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/systemd"
)

func TestParseServiceReadsWhatTheProviderWrites(t *testing.T) {
	in := systemd.Service{
		Description: "a 100 % daemon", Wants: []string{"b.service"}, Requires: []string{"c.service"}, Type: "notify",
		Exec: []string{"/opt/x", "--name=a b", "$HOME", "100%", `back\slash`}, ExecStartPre: [][]string{{"/bin/true"}}, ExecStopPost: [][]string{{"/bin/rm", "x"}},
		Environment: map[string]string{"A": "1 2", "B": "$x"}, User: "moai", Group: "moai", UMask: "0027", WorkingDirectory: "/var/lib/moai",
		StateDirectory: "moai/kvd", StateDirectoryMode: "0700", RuntimeDirectory: "moai", RuntimeDirectoryMode: "0750", RuntimeDirectoryPreserve: "yes",
		Restart: "on-failure", RestartSec: 1500 * time.Millisecond, TimeoutStartSec: time.Minute, TimeoutStopSec: 2 * time.Second, KillMode: "mixed",
		KillSignal: "SIGINT", NoStartLimit: true, Hardening: systemd.Strict(),
	}
	text, err := in.Render(systemd.Owner{Fleet: "f", Resource: "r", Writer: "w"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseService(text)
	if err != nil {
		t.Fatal(err)
	}
	if s.Description != in.Description || !slices.Equal(s.Needs, []string{"b.service", "c.service"}) || !slices.Equal(s.WantedBy, []string{"multi-user.target"}) {
		t.Errorf("unit: %+v", s)
	}
	if !slices.Equal(s.Exec, in.Exec) || len(s.ExecPre) != 1 || !slices.Equal(s.ExecPost[0], in.ExecStopPost[0]) || !slices.Equal(s.Env, []string{"A=1 2", "B=$x"}) {
		t.Errorf("commands: %q %q %q %q", s.Exec, s.ExecPre, s.ExecPost, s.Env)
	}
	if s.Type != "notify" || s.User != "moai" || s.Group != "moai" || s.UMask != 0o27 || s.Directory != "/var/lib/moai" || s.StateDirectory != "moai/kvd" ||
		s.StateMode != 0o700 || s.RuntimeDirectory != "moai" || s.RuntimeMode != 0o750 || !s.PreserveRuntime {
		t.Errorf("service: %+v", s)
	}
	if s.Restart != "on-failure" || s.RestartDelay != in.RestartSec || s.StartTimeout != time.Minute || s.StopTimeout != 2*time.Second || s.StartLimit ||
		!s.OnlyMain || s.KillSignal != "INT" {
		t.Errorf("life: %+v", s)
	}
}

func TestParseServiceRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":         "",
		"no command":      "[Service]\nType=exec\n",
		"relative":        "[Service]\nExecStart=true\n",
		"variable":        "[Service]\nExecStart=/bin/echo $HOME\n",
		"type":            "[Service]\nType=dbus\nExecStart=/bin/true\n",
		"folder outside":  "[Service]\nRuntimeDirectory=../etc\nExecStart=/bin/true\n",
		"folder absolute": "[Service]\nStateDirectory=/etc\nExecStart=/bin/true\n",
		"span":            "[Service]\nRestartSec=soon\nExecStart=/bin/true\n",
		"mask":            "[Service]\nUMask=9\nExecStart=/bin/true\n",
	} {
		if s, err := ParseService(text); err == nil {
			t.Errorf("%s: accepted as %+v", name, s)
		}
	}
}

func FuzzParseService(f *testing.F) {
	f.Add("[Service]\nExecStart=/bin/true\nRestartSec=1ms\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseService(text)
		if err == nil && (len(s.Exec) == 0 || filepath.IsAbs(s.StateDirectory) || strings.HasPrefix(s.RuntimeDirectory, "..")) {
			t.Errorf("%q gives %+v", text, s)
		}
	})
}

func TestRestarts(t *testing.T) {
	for _, c := range []struct {
		restart, result string
		want            bool
	}{
		{"no", "exit-code", false}, {"always", "success", true}, {"on-failure", "success", false}, {"on-failure", "signal", true},
		{"on-abnormal", "exit-code", false}, {"on-abnormal", "timeout", true}, {"on-success", "success", true}, {"on-abort", "signal", true},
	} {
		if got := (Service{Restart: c.restart}).restarts(c.result); got != c.want {
			t.Errorf("Restart=%s after %s: %v", c.restart, c.result, got)
		}
	}
}

func TestParseSystemctl(t *testing.T) {
	for line, want := range map[string]Call{
		"daemon-reload":                      {Verb: "daemon-reload"},
		"enable --now -- a.service":          {Verb: "enable", Now: true, Units: []string{"a.service"}},
		"show --no-pager -p Id,Result -- a":  {Verb: "show", Properties: []string{"Id", "Result"}, Units: []string{"a.service"}},
		"show -P MainPID a":                  {Verb: "show", Properties: []string{"MainPID"}, Bare: true, Units: []string{"a.service"}},
		"show -pId a":                        {Verb: "show", Properties: []string{"Id"}, Units: []string{"a.service"}},
		"kill -s KILL a.service":             {Verb: "kill", Signal: "KILL", Units: []string{"a.service"}},
		"kill --signal=SIGHUP a.service":     {Verb: "kill", Signal: "HUP", Units: []string{"a.service"}},
		"is-active --quiet a":                {Verb: "is-active", Quiet: true, Units: []string{"a.service"}},
		"list-unit-files --no-legend moai-*": {Verb: "list-unit-files", NoLegend: true, Units: []string{"moai-*"}},
		"is-system-running --wait":           {Verb: "is-system-running", Wait: true},
		"--version":                          {Verb: "version"},
		"--failed --plain":                   {Verb: "list-units", States: []string{"failed"}},
	} {
		got, err := ParseSystemctl(strings.Fields(line))
		if err != nil || !same(got, want) {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
	}
	for _, line := range []string{"start", "mask a", "--user start a", "isolate x"} {
		if got, err := ParseSystemctl(strings.Fields(line)); err == nil {
			t.Errorf("%s: accepted as %+v", line, got)
		}
	}
}

func same(a, b Call) bool {
	return a.Verb == b.Verb && slices.Equal(a.Units, b.Units) && a.Now == b.Now && a.Quiet == b.Quiet && a.All == b.All && a.NoLegend == b.NoLegend &&
		a.Wait == b.Wait && a.Signal == b.Signal && slices.Equal(a.Properties, b.Properties) && a.Bare == b.Bare && slices.Equal(a.States, b.States)
}

func TestParseJournalctl(t *testing.T) {
	q, sync, err := ParseJournalctl(strings.Fields("-u a --since @12 -n 5 --no-pager -o cat -q"))
	if err != nil || sync || !slices.Equal(q.Units, []string{"a.service"}) || q.Last != 5 || q.Format != "cat" || q.Since.Unix() != 12 {
		t.Errorf("%+v %v %v", q, sync, err)
	}
	if _, sync, err := ParseJournalctl([]string{"--sync"}); !sync || err != nil {
		t.Errorf("sync %v, %v", sync, err)
	}
	for _, line := range []string{"--since yesterday", "-n many", "--vacuum-size=1"} {
		if q, _, err := ParseJournalctl(strings.Fields(line)); err == nil {
			t.Errorf("%s: accepted as %+v", line, q)
		}
	}
}

func TestParseRun(t *testing.T) {
	got, err := ParseRun(strings.Fields("--quiet --collect --unit=x.service -p User=moai -p UMask=0007 /bin/sleep 5 --long"), systemd.Exec)
	if want := "[Service]\nType=exec\nUser=moai\nUMask=0007\nExecStart=/bin/sleep 5 --long\n"; err != nil || got.Unit != "x.service" || got.Text != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, line := range []string{"--unit=x", "/bin/true", "--scope --unit=x /bin/true"} {
		if got, err := ParseRun(strings.Fields(line), systemd.Exec); err == nil {
			t.Errorf("%s: accepted as %+v", line, got)
		}
	}
}

func TestShowIsReadAsTheProviderReadsIt(t *testing.T) {
	text := Show([]State{
		{ID: "a.service", Load: "loaded", Active: "active", Sub: "running", File: "enabled", Fragment: "/etc/systemd/system/a.service", Result: "success", MainPID: 7, Restarts: 2},
		{ID: "b.service", Load: "not-found", Active: "inactive", Sub: "dead", Result: "success"},
	}, strings.Split("Id,LoadState,ActiveState,SubState,MainPID,NRestarts,UnitFileState,NeedDaemonReload,FragmentPath,Result,ExecMainStatus", ","), false)
	shows, err := systemd.ParseShow(text)
	if err != nil || len(shows) != 2 {
		t.Fatalf("%v in %q", err, text)
	}
	if a := shows[0]; !a.Active() || !a.Enabled() || a.MainPID != 7 || a.NRestarts != 2 || a.ID != "a.service" || a.NeedDaemonReload {
		t.Errorf("%+v", a)
	}
	if b := shows[1]; b.Found() || b.Active() {
		t.Errorf("%+v", b)
	}
	at := State{Started: time.Unix(1_800_000_000, 0)}
	if got := Show([]State{at}, []string{"ExecMainStartTimestamp"}, true); got != "Fri 2027-01-15 08:00:00 UTC\n" {
		t.Errorf("start: %q", got)
	}
}

func TestJournal(t *testing.T) {
	j := NewJournal("h")
	for i, unit := range []string{"a.service", "b.service", "a.service"} {
		j.Add(Line{Time: time.Unix(int64(i), 0).UTC(), Unit: unit, Ident: "p", PID: 1, Text: string(rune('x' + i))})
	}
	for _, c := range []struct {
		q    Query
		want string
	}{
		{Query{Units: []string{"a.service"}, Last: -1, Format: "cat"}, "x\nz\n"},
		{Query{Units: []string{"a.service"}, Last: 1, Format: "cat"}, "z\n"},
		{Query{Since: time.Unix(1, 0), Last: -1, Format: "cat"}, "y\nz\n"},
		{Query{Last: 1, Format: "short-iso"}, "1970-01-01T00:00:02+0000 h p[1]: z\n"},
	} {
		if got := j.Text(c.q); got != c.want {
			t.Errorf("%+v: %q", c.q, got)
		}
	}
}

func TestLines(t *testing.T) {
	var got []string
	w := NewLines(func(s string) { got = append(got, s) })
	for _, part := range []string{"a\nb", "c\r\n", "last"} {
		_, _ = w.Write([]byte(part))
	}
	w.Flush()
	if !slices.Equal(got, []string{"a", "bc", "last"}) {
		t.Errorf("%q", got)
	}
}

// fake is a program that ends when it is told to.
type fake struct {
	pid    int
	launch Launch
	end    chan Exit
	once   sync.Once
}

func (f *fake) PID() int   { return f.pid }
func (f *fake) Wait() Exit { return <-f.end }
func (f *fake) Signal(name string, all bool) error {
	if all && name == "KILL" { // also what is sent after the end
		f.stop(Exit{Signal: name})
		return nil
	}
	f.stop(Exit{Signal: name})
	return nil
}
func (f *fake) stop(e Exit) { f.once.Do(func() { f.end <- e }) }

// rig is a manager whose programs are fakes.
type rig struct {
	*Manager
	dir    string
	starts chan *fake
	notify map[string]chan map[string]string
	mu     sync.Mutex
	fail   error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{dir: t.TempDir(), starts: make(chan *fake, 100), notify: map[string]chan map[string]string{}}
	pids := 100
	r.Manager = New(Config{
		UnitDir: r.dir, StateDir: t.TempDir(), RunDir: t.TempDir(), Journal: NewJournal("h"), Now: time.Now,
		Chown: func(string, string, string) error { return nil },
		Launch: func(l Launch) (Process, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.fail != nil {
				return nil, r.fail
			}
			pids++
			f := &fake{pid: pids, launch: l, end: make(chan Exit, 1)}
			r.starts <- f
			return f, nil
		},
		Notify: func(unit string) (string, <-chan map[string]string, func(), error) {
			ch := make(chan map[string]string, 4)
			r.mu.Lock()
			r.notify[unit] = ch
			r.mu.Unlock()
			return "/sock", ch, sync.OnceFunc(func() { close(ch) }), nil
		},
	})
	return r
}

func (r *rig) unit(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) ready(unit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notify[unit] <- map[string]string{"READY": "1", "STATUS": "up"}
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("never: %s", what)
		}
	}
}

func TestLifeOfAService(t *testing.T) {
	r := newRig(t)
	const u = "a.service"
	if err := r.Start(t.Context(), u); err == nil || r.State(u).Load != "not-found" {
		t.Errorf("a unit without a file: %v, %+v", err, r.State(u))
	}
	r.unit(t, u, "[Service]\nType=notify\nExecStart=/x\nRestart=always\nRestartSec=1ms\nRuntimeDirectory=a\nStartLimitIntervalSec=0\n[Install]\nWantedBy=multi-user.target\n")
	if err := r.Enable(u); err != nil || r.State(u).File != "enabled" {
		t.Errorf("enable: %v, %+v", err, r.State(u))
	}
	done := make(chan error)
	go func() { done <- r.Start(t.Context(), u) }()
	first := <-r.starts
	if s := r.State(u); s.Active != "activating" {
		t.Errorf("before it is ready: %+v", s)
	}
	if !slices.Contains(first.launch.Env, "NOTIFY_SOCKET=/sock") || !slices.ContainsFunc(first.launch.Env, func(e string) bool { return strings.HasPrefix(e, "RUNTIME_DIRECTORY=") }) {
		t.Errorf("environment %q", first.launch.Env)
	}
	r.ready(u)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if s := r.State(u); s.Active != "active" || s.MainPID != first.pid || s.NeedsReload {
		t.Errorf("up: %+v", s)
	}
	first.stop(Exit{Signal: "KILL"})
	second := <-r.starts
	r.ready(u)
	until(t, "it is up again", func() bool { return r.State(u).Active == "active" })
	if s := r.State(u); s.Restarts != 1 || s.MainPID != second.pid {
		t.Errorf("after a restart: %+v", s)
	}
	r.unit(t, u, "[Service]\nExecStart=/y\n")
	if !r.State(u).NeedsReload {
		t.Error("a changed file is not seen")
	}
	r.Reload()
	if r.State(u).NeedsReload {
		t.Error("a reload changes nothing")
	}
	if err := r.Stop(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if s := r.State(u); s.Active != "inactive" || s.MainPID != 0 || s.Result != "success" {
		t.Errorf("stopped: %+v", s)
	}
	if err := r.Disable(u); err != nil || r.State(u).File != "disabled" {
		t.Errorf("disable: %v, %+v", err, r.State(u))
	}
	if err := os.Remove(filepath.Join(r.dir, u)); err != nil || r.State(u).Load != "not-found" {
		t.Errorf("an idle unit without a file: %v, %+v", err, r.State(u))
	}
	if log := r.c.Journal.Text(Query{Units: []string{u}, Last: -1, Format: "cat"}); !strings.Contains(log, "Main process exited, code=killed, status=KILL") {
		t.Errorf("log: %s", log)
	}
}

func TestServicesThatDoNotStart(t *testing.T) {
	r := newRig(t)
	r.unit(t, "n.service", "[Service]\nType=notify\nExecStart=/x\n")
	done := make(chan error)
	go func() { done <- r.Start(t.Context(), "n.service") }()
	(<-r.starts).stop(Exit{Status: 3})
	if err := <-done; err == nil || !strings.Contains(err.Error(), "status 3") {
		t.Errorf("ended before ready: %v", err)
	}
	if s := r.State("n.service"); s.Active != "failed" || s.Result != "exit-code" || s.ExitStatus != 3 {
		t.Errorf("%+v", s)
	}
	if err := r.ResetFailed("n.service"); err != nil || r.State("n.service").Active != "inactive" {
		t.Errorf("reset: %v", err)
	}
	r.unit(t, "slow.service", "[Service]\nType=notify\nExecStart=/x\nTimeoutStartSec=5ms\n")
	if err := r.Start(t.Context(), "slow.service"); err == nil || r.State("slow.service").Result != "timeout" {
		t.Errorf("never ready: %v, %+v", err, r.State("slow.service"))
	}
	r.fail = errors.New("no such file")
	r.unit(t, "gone.service", "[Service]\nType=exec\nExecStart=/x\n")
	if err := r.Start(t.Context(), "gone.service"); err == nil || r.State("gone.service").ExitStatus != 203 {
		t.Errorf("no program: %v, %+v", err, r.State("gone.service"))
	}
	r.unit(t, "bad.service", "[Service]\nType=exec\n")
	if err := r.Start(t.Context(), "bad.service"); err == nil || r.State("bad.service").Load != "bad-setting" {
		t.Errorf("bad unit: %v, %+v", err, r.State("bad.service"))
	}
	for what, err := range map[string]error{
		"stop": r.Stop(t.Context(), "x.service"), "disable": r.Disable("x.service"), "reset": r.ResetFailed("x.service"), "kill": r.Kill("x.service", "KILL"),
	} {
		if err == nil {
			t.Errorf("%s of a unit that is not there succeeds", what)
		}
	}
}

func TestStartLimit(t *testing.T) {
	r := newRig(t)
	r.unit(t, "l.service", "[Service]\nType=exec\nExecStart=/x\nRestart=always\nRestartSec=0\n")
	if err := r.Start(t.Context(), "l.service"); err != nil {
		t.Fatal(err)
	}
	for range startBurst {
		(<-r.starts).stop(Exit{Status: 1})
	}
	until(t, "it gives up", func() bool { return r.State("l.service").Result == "start-limit-hit" })
}

func TestTransientUnitIsForgotten(t *testing.T) {
	r := newRig(t)
	if err := r.Run(t.Context(), "t.service", "[Service]\nType=exec\nExecStart=/x\n"); err != nil {
		t.Fatal(err)
	}
	if s := r.State("t.service"); s.Active != "active" || s.File != "transient" {
		t.Errorf("%+v", s)
	}
	if err := r.Run(t.Context(), "t.service", "[Service]\nExecStart=/x\n"); err == nil {
		t.Error("a second one of the same name")
	}
	if err := r.Stop(t.Context(), "t.service"); err != nil {
		t.Fatal(err)
	}
	if s := r.State("t.service"); s.Load != "not-found" || s.Active != "inactive" {
		t.Errorf("after it ended: %+v", s)
	}
}
