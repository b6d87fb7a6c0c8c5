package host_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/facts"
	"github.com/moai-dev/terraform-provider-moai/internal/host"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh/sshtest"
)

func TestUsers(t *testing.T) {
	m := sshtest.NewMachine(t)
	h := host.New(connect(t, m.Serve()), host.Options{})
	u := host.User{Name: "moai-engine", Group: "moai", System: true, Extra: []string{"render", "video"}}
	for _, want := range []bool{true, false} {
		if changed, err := h.EnsureUser(t.Context(), u); err != nil || changed != want {
			t.Fatalf("EnsureUser: %v %v, want %v", changed, err, want)
		}
	}
	missing, err := h.Missing(t.Context(), host.UserAccount("moai-engine"), host.UserAccount("moai"), host.GroupAccount("moai"))
	if err != nil || !slices.Equal(missing, []host.Account{"user:moai"}) {
		t.Errorf("Missing: %v %v", missing, err)
	}
	u.Group = "other"
	if _, err := h.EnsureUser(t.Context(), u); !errors.Is(err, host.ErrConflict) {
		t.Errorf("another group: %v", err)
	}
	if _, err := h.EnsureUser(t.Context(), host.User{Name: "-x", Group: "moai"}); err == nil {
		t.Error("a bad name was accepted")
	}
	for _, want := range []host.Removal{host.Removed, host.Gone} {
		if r, err := h.RemoveUser(t.Context(), "moai-engine", false); err != nil || r != want {
			t.Errorf("RemoveUser: %v %v, want %v", r, err, want)
		}
	}
	if r, err := h.RemoveGroup(t.Context(), "moai"); err != nil || r != host.Removed {
		t.Errorf("RemoveGroup: %v %v", r, err)
	}
}

// A group that was there before does not go with a user of its name.
func TestRemoveUserKeepsGroup(t *testing.T) {
	m := sshtest.NewMachine(t)
	h := host.New(connect(t, m.Serve()), host.Options{})
	m.SetUser("moai", "moai")
	if r, err := h.RemoveUser(t.Context(), "moai", true); err != nil || r != host.Removed {
		t.Errorf("RemoveUser: %v %v", r, err)
	}
	if missing, err := h.Missing(t.Context(), host.GroupAccount("moai")); err != nil || len(missing) != 0 {
		t.Errorf("Missing: %v %v", missing, err)
	}
}

func TestList(t *testing.T) {
	beds(t, host.Options{}, func(t *testing.T, b *bed) {
		if names, err := b.h.List(t.Context(), b.dir+"/no"); err != nil || names != nil {
			t.Errorf("of nothing: %v %v", names, err)
		}
		for _, n := range []string{"l/b b", "l/.a"} {
			if _, err := b.h.PutFile(t.Context(), b.file(n, "x", 0)); err != nil {
				t.Fatal(err)
			}
		}
		if names, err := b.h.List(t.Context(), b.dir+"/l"); err != nil || !slices.Equal(names, []string{".a", "b b"}) {
			t.Errorf("List: %q %v", names, err)
		}
		if _, err := b.h.List(t.Context(), b.dir+"/l/.a"); !errors.Is(err, host.ErrConflict) {
			t.Errorf("of a file: %v", err)
		}
	})
}

func TestUnits(t *testing.T) {
	m := sshtest.NewMachine(t)
	broken := false
	m.OnUnit = func(event, unit string) error {
		if event == "start" && broken {
			return errors.New("exit status 1")
		}
		return nil
	}
	h := host.New(connect(t, m.Serve()), host.Options{})
	ctx := t.Context()
	const unit = "moai-kvd.service"
	look := func() host.UnitState {
		t.Helper()
		_, units, err := h.Inspect(ctx, nil, []string{"other.service", unit})
		if err != nil || len(units) != 2 || units[1].ID != unit {
			t.Fatalf("%+v %v", units, err)
		}
		return units[1]
	}
	if u := look(); u.Found() {
		t.Errorf("%+v", u)
	}
	for _, f := range []func() error{
		func() error { return h.Stop(ctx, unit) }, func() error { return h.Disable(ctx, unit) }, func() error { return h.DisableNow(ctx, unit) },
	} {
		if err := f(); err != nil {
			t.Errorf("of an unknown unit: %v", err)
		}
	}
	if err := h.EnableNow(ctx, unit); err == nil {
		t.Error("an unknown unit started")
	}
	put := func(text string) {
		t.Helper()
		if _, err := h.PutFile(ctx, host.File{Path: host.UnitDir + "/" + unit, Content: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	put("one")
	if err := errors.Join(h.DaemonReload(ctx), h.EnableNow(ctx, unit)); err != nil {
		t.Fatal(err)
	}
	u := look()
	if !u.Active() || !u.Enabled() || u.MainPID == 0 || u.NeedDaemonReload {
		t.Errorf("%+v", u)
	}
	put("two")
	if !look().NeedDaemonReload {
		t.Error("a changed file needs no reload?")
	}
	if err := errors.Join(h.DaemonReload(ctx), h.Restart(ctx, unit)); err != nil {
		t.Fatal(err)
	}
	if again := look(); again.MainPID == u.MainPID || again.NeedDaemonReload {
		t.Errorf("%+v", again)
	}
	broken = true
	if err := h.Restart(ctx, unit); err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("a broken unit: %v", err)
	}
	if u := look(); u.ActiveState != "failed" {
		t.Errorf("%+v", u)
	}
	if err := errors.Join(h.ResetFailed(ctx, unit), h.DisableNow(ctx, unit)); err != nil {
		t.Error(err)
	}
	if _, err := h.JournalTail(ctx, unit, 5); err != nil {
		t.Error(err)
	}
	if err := h.Restart(ctx, "--now"); err == nil {
		t.Error("an option was taken for a unit")
	}
}

// TestUnitScript runs the real unit script against a stand-in systemctl.
func TestUnitScript(t *testing.T) {
	dir := t.TempDir()
	tool := func(name, body string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	tool("systemctl", `case "$*" in
"show -p LoadState -- gone.service") echo LoadState=not-found;;
"show -p LoadState -- "*) echo LoadState=loaded;;
"show -p ExecMainStartTimestamp -- "*) echo "ExecMainStartTimestamp=$(cat "$0.start")";;
"show "*) shift $#; printf 'Id=a.service\nLoadState=loaded\nActiveState=active\n\nId=b.service\nLoadState=not-found\nActiveState=inactive\n';;
*good*|daemon-reload) ;;
*) echo "Failed: $*" >&2; exit 5;;
esac
`)
	tool("journalctl", `case $* in
--sync) ;;
"-u "*" --since @1000000000 "*) ;; # a start that said nothing
"-u "*" --since "*) echo "since $4 it says no";;
*) echo "last words of $2";;
esac
`)
	start := func(at string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "systemctl.start"), []byte(at), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	start("")
	s := sshtest.New(t, sshtest.Shell(dir, "PATH="+dir+":"+os.Getenv("PATH")))
	h := host.New(connect(t, s), host.Options{LockPath: filepath.Join(dir, "lock")})
	ctx := t.Context()
	if err := errors.Join(h.DaemonReload(ctx), h.Restart(ctx, "good.service"), h.Stop(ctx, "gone.service"), h.DisableNow(ctx, "gone.service")); err != nil {
		t.Error(err)
	}
	if err := h.Stop(ctx, "bad.service"); err == nil || !strings.Contains(err.Error(), "Failed: stop -- bad.service") {
		t.Errorf("stop: %v", err)
	}
	if err := h.EnableNow(ctx, "bad.service"); err == nil || !strings.Contains(err.Error(), "last words of bad.service") {
		t.Errorf("enable: %v", err)
	}
	start("Sun 2001-09-09 01:46:40 UTC")
	if log, err := h.JournalTail(ctx, "bad.service", 5); err != nil || log != "last words of bad.service\n" {
		t.Errorf("a start that said nothing: %q, %v", log, err)
	}
	start("Sun 2001-09-09 01:46:41 UTC")
	if log, err := h.JournalTail(ctx, "bad.service", 5); err != nil || log != "since @1000000001 it says no\n" {
		t.Errorf("a start's own lines: %q, %v", log, err)
	}
	// The cause comes before what systemctl says of it, and nothing of an earlier start.
	err := h.EnableNow(ctx, "bad.service")
	cause, said := -1, -1
	if err != nil {
		cause, said = strings.Index(err.Error(), "since @1000000001"), strings.Index(err.Error(), "Failed: enable --now")
	}
	if cause < 0 || said < cause || strings.Contains(err.Error(), "last words") {
		t.Errorf("enable: %v", err)
	}
	_, units, err := h.Inspect(ctx, nil, []string{"a.service", "b.service"})
	if err != nil || !units[0].Active() || units[1].Found() {
		t.Errorf("%+v %v", units, err)
	}
}

func TestProbe(t *testing.T) {
	m := sshtest.NewMachine(t)
	h := host.New(connect(t, m.Serve()), host.Options{})
	f, err := h.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f.Vendor != facts.VendorNone || f.Arch != "amd64" || f.CPUs != 64 || f.OS.ID != "debian" || f.Systemd != 252 || len(f.NICs) != 1 || len(f.MachineID) != 32 {
		t.Errorf("%+v", f)
	}
	if w := m.Writes(); len(w) != 0 {
		t.Errorf("a probe wrote: %v", w)
	}
}

// TestProbeScript runs the real probe here: whatever this machine is, the basics are read and nothing fails.
func TestProbeScript(t *testing.T) {
	if _, err := os.Stat("/proc/meminfo"); err != nil {
		t.Skip("not a Linux machine")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\nexec sleep 60\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := sshtest.New(t, sshtest.Shell(dir, "PATH="+dir+":"+os.Getenv("PATH")))
	raw, err := host.New(connect(t, s), host.Options{ToolLimit: 1}).Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f := facts.Parse(raw)
	if f.Kernel == "" || f.CPUs == 0 || f.MemoryBytes == 0 || f.UnixTime == 0 {
		t.Errorf("%+v", f)
	}
	if raw["nvidia-smi"].Exit != 124 || !raw.Has("amd-smi-static") {
		t.Errorf("a tool that hangs: %+v", raw["nvidia-smi"])
	}
}

func TestProbeFailsForAHostThatIsAway(t *testing.T) {
	s := sshtest.NewMachine(t).Serve()
	c := connect(t, s)
	s.Close()
	if _, err := host.New(c, host.Options{}).Probe(t.Context()); err == nil {
		t.Error("no error")
	}
}
