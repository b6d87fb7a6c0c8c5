package systemd

import (
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// text draws what a unit file can carry in a word.
func text() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringOf(rapid.Rune()),
		rapid.SampledFrom([]string{"", "%n", "%%", "$HOME", "${X}", "$$", `"`, `\`, `\n`, "a b", "\n", "\t", "\x01", ";", "'", "#", "=", "é", "-x"}),
	).Filter(func(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") })
}

func TestExecRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		argv := append([]string{"/opt/moai/bin/moaid"}, rapid.SliceOf(text()).Draw(t, "args")...)
		line, err := Exec(argv)
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(line, "\n\r") {
			t.Fatalf("%q is not one line", line)
		}
		got, err := SplitExec(line)
		if err != nil || !slices.Equal(got, argv) {
			t.Fatalf("%q became %q (%v)", argv, got, err)
		}
	})
}

func TestValuesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOf(text()).Draw(t, "list")
		var words []string
		for _, s := range list {
			w, err := QuoteValue(s)
			if err != nil {
				t.Fatal(err)
			}
			words = append(words, w)
		}
		got, err := SplitValues(strings.Join(words, " "))
		if err != nil || !slices.Equal(got, list) {
			t.Fatalf("%q became %q (%v)", list, got, err)
		}
	})
}

func TestUnitRoundTrip(t *testing.T) {
	word := rapid.StringMatching(`[A-Za-z][A-Za-z0-9-]{0,8}`)
	value := rapid.Custom(func(t *rapid.T) string {
		w, err := QuoteValue(text().Draw(t, "v"))
		if err != nil {
			t.Fatal(err)
		}
		return w
	})
	entry := rapid.Custom(func(t *rapid.T) Entry { return Entry{word.Draw(t, "key"), value.Draw(t, "value")} })
	rapid.Check(t, func(t *rapid.T) {
		var u Unit
		for range rapid.IntRange(0, 3).Draw(t, "sections") {
			s := Section{Name: word.Draw(t, "name")}
			if e := rapid.SliceOfN(entry, 0, 4).Draw(t, "entries"); len(e) > 0 {
				s.Entries = e
			}
			u.Sections = append(u.Sections, s)
		}
		body, err := u.Render()
		if err != nil {
			t.Fatal(err)
		}
		file, err := Owner{Fleet: "f", Resource: "r", Writer: "w"}.Stamp(body)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(file)
		if err != nil || !reflect.DeepEqual(got, u) {
			t.Fatalf("%#v became %#v (%v)\n%s", u, got, err, file)
		}
	})
}

func TestRenderRefuses(t *testing.T) {
	for _, u := range []Unit{
		{Sections: []Section{{Name: "Ser]vice"}}},
		{Sections: []Section{{Name: "Service", Entries: []Entry{{"Exec Start", "x"}}}}},
		{Sections: []Section{{Name: "Service", Entries: []Entry{{"ExecStart", "x\nExecStartPre=/bin/evil"}}}}},
		{Sections: []Section{{Name: "Service", Entries: []Entry{{"ExecStart", `x \`}}}}},
		{Sections: []Section{{Name: "Service", Entries: []Entry{{"ExecStart", "x\xff"}}}}},
	} {
		if text, err := u.Render(); err == nil {
			t.Errorf("rendered %q", text)
		}
	}
	for _, s := range []Service{
		{},
		{Exec: []string{"relative"}},
		{Exec: []string{"/a b$c"}},
		{Exec: []string{"/a"}, Description: "x\ny"},
		{Exec: []string{"/a"}, User: "a b"},
		{Exec: []string{"/a"}, Environment: map[string]string{"A B": "x"}},
		{Exec: []string{"/a", "\x00"}},
	} {
		if text, err := s.Render(Owner{}); err == nil {
			t.Errorf("rendered %q", text)
		}
	}
}

func TestStamp(t *testing.T) {
	o := Owner{Fleet: "prod", Resource: "moai_node.h100", Writer: "terraform-provider-moai 1"}
	file, err := o.Stamp("[Unit]\n")
	if err != nil {
		t.Fatal(err)
	}
	got, intact, ok := ReadStamp(file)
	if !ok || !intact || got != o {
		t.Errorf("%+v %v %v", got, intact, ok)
	}
	if _, intact, ok := ReadStamp(file + "#changed\n"); !ok || intact {
		t.Errorf("a changed body is intact")
	}
	for _, foreign := range []string{"", "[Unit]\n", "# Written by somebody\n", strings.ReplaceAll(file, "# moai-writer", "# writer")} {
		if _, _, ok := ReadStamp(foreign); ok {
			t.Errorf("%q carries a stamp", foreign)
		}
	}
	if _, err := (Owner{Fleet: "a\nb"}).Stamp(""); err == nil {
		t.Error("a fleet of two lines was stamped")
	}
}

func full() Service {
	return Service{
		Description: "KV daemon 100% of $x", After: []string{"network-online.target"}, Wants: []string{"network-online.target"},
		Type: "notify", Exec: []string{"/bin/true", "kvd", "--name", "a b", "%n", "$HOME", `"q"`}, Environment: map[string]string{"A": "x y", "B": "$z%"},
		User: "daemon", Group: "daemon", StateDirectory: "moai/kvd", StateDirectoryMode: "0700", RuntimeDirectory: "moai", RuntimeDirectoryPreserve: "yes",
		WatchdogSec: 30 * time.Second, TimeoutStopSec: time.Minute, FileDescriptorStoreMax: 64, LimitMEMLOCK: "infinity", LimitNOFILE: 65536,
		Hardening: Strict(),
	}
}

func TestService(t *testing.T) {
	file, err := full().Render(Owner{Fleet: "prod", Resource: "r", Writer: "w"})
	if err != nil {
		t.Fatal(err)
	}
	u, err := Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ section, key, value string }{
		{"Unit", "Description", "KV daemon 100%% of $x"},
		{"Service", "ExecStart", `/bin/true kvd --name "a b" %%n $$HOME "\"q\""`},
		{"Service", "Restart", "always"}, {"Service", "WatchdogSec", "30000ms"}, {"Service", "CapabilityBoundingSet", ""},
		{"Service", "FileDescriptorStoreMax", "64"}, {"Service", "LimitMEMLOCK", "infinity"}, {"Service", "ProtectSystem", "strict"},
		{"Install", "WantedBy", "multi-user.target"},
	} {
		if got := u.Get(want.section, want.key); len(got) != 1 || got[0] != want.value {
			t.Errorf("%s= is %q, want %q", want.key, got, want.value)
		}
	}
	if got := u.Get("Service", "Environment"); !slices.Equal(got, []string{`"A=x y"`, `"B=$z%%"`}) {
		t.Errorf("Environment = %q", got)
	}
	again, err := full().Render(Owner{Fleet: "prod", Resource: "r", Writer: "w"})
	if err != nil || again != file {
		t.Error("rendering twice gives two texts")
	}
}

// lacks says what this machine has not; where MOAI_REQUIRE is set, that is a failure.
func lacks(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("MOAI_REQUIRE") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// TestSystemdAccepts asks systemd itself.
func TestSystemdAccepts(t *testing.T) {
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		lacks(t, "no systemd-analyze on this machine")
	}
	file, err := full().Render(Owner{Fleet: "prod", Resource: "r", Writer: "w"})
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/moai-kvd.service"
	writeFile(t, path, file)
	out, err := exec.Command(tool, "verify", "--man=no", path).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "moai-kvd.service") {
			t.Errorf("systemd says: %s", line)
		}
	}
	if err != nil && len(out) == 0 {
		t.Errorf("systemd-analyze: %v", err)
	}
	t.Logf("%s (%v)", out, err)
}

func TestUnitNames(t *testing.T) {
	for _, ok := range []string{"moai-kvd.service", "a@b.service", `a\x2db.service`, "x.socket", "a:b_c.timer"} {
		if err := ValidateUnitName(ok); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", ".service", "a", "-a.service", "a/b.service", "a b.service", "a\n.service", "é.service", "a@b@c.service", "@a.service", strings.Repeat("a", 256) + ".service"} {
		if err := ValidateUnitName(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestEscapeName(t *testing.T) {
	for s, want := range map[string]string{"prefill-0": `prefill\x2d0`, "a/b": "a-b", ".x": `\x2ex`, "a.b_c:d": "a.b_c:d", "é": `\xc3\xa9`} {
		if got := EscapeName(s); got != want {
			t.Errorf("EscapeName(%q) = %q, want %q", s, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		e := EscapeName(s)
		if got, err := UnescapeName(e); err != nil || got != s {
			t.Fatalf("%q became %q (%v)", s, got, err)
		}
		if s != "" && s[0] != '/' && len(e) < 200 {
			if err := ValidateUnitName(e + ".service"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestEscapeNameAsSystemd compares with the real tool.
func TestEscapeNameAsSystemd(t *testing.T) {
	tool, err := exec.LookPath("systemd-escape")
	if err != nil {
		lacks(t, "no systemd-escape on this machine")
	}
	for _, s := range []string{"prefill-0", "a/b", ".x", "a b", "é", "x@y", `a\b`, "A:b_c.d", "%n", "a..b"} {
		out, err := exec.Command(tool, "--", s).Output()
		if got := EscapeName(s); err != nil || got != strings.TrimSpace(string(out)) {
			t.Errorf("EscapeName(%q) = %q, systemd says %q (%v)", s, got, out, err)
		}
	}
}

func TestParseShow(t *testing.T) {
	const out = `Id=a.service
LoadState=loaded
ActiveState=active
SubState=running
MainPID=42
NRestarts=3
UnitFileState=enabled
NeedDaemonReload=yes
FragmentPath=/etc/systemd/system/a.service
Result=success
ExecMainStatus=0
Strange=a=b

Id=b.service
LoadState=not-found
ActiveState=inactive
`
	got, err := ParseShow(out)
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v %v", got, err)
	}
	want := Show{ID: "a.service", LoadState: "loaded", ActiveState: "active", SubState: "running", MainPID: 42, NRestarts: 3, UnitFileState: "enabled",
		NeedDaemonReload: true, FragmentPath: "/etc/systemd/system/a.service", Result: "success"}
	if got[0] != want || got[1].Found() || !got[0].Enabled() || !got[0].Active() {
		t.Errorf("%+v", got)
	}
	for _, bad := range []string{"Id=a\n", "LoadState=loaded\n", "noise\n", "LoadState=a\nActiveState=b\nMainPID=x\n"} {
		if got, err := ParseShow(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	file, err := full().Render(Owner{Fleet: "prod"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Add("[A]\nb=c\n")
	f.Fuzz(func(t *testing.T, s string) {
		u, err := Parse(s)
		if err != nil {
			return
		}
		body, err := u.Render()
		if err != nil {
			return // outer space or bytes that are not UTF-8
		}
		again, err := Parse(body)
		if err != nil || !reflect.DeepEqual(u, again) {
			t.Fatalf("%#v became %#v (%v)", u, again, err)
		}
	})
}

func FuzzSplitExec(f *testing.F) {
	f.Add(`/bin/true "a b" %%n $$HOME \x41 "\""`)
	f.Fuzz(func(t *testing.T, s string) {
		argv, err := SplitExec(s)
		if err != nil {
			return
		}
		line, err := Exec(argv)
		if err != nil {
			return
		}
		again, err := SplitExec(line)
		if err != nil || !slices.Equal(argv, again) {
			t.Fatalf("%q became %q (%v)", argv, again, err)
		}
	})
}

func FuzzParseShow(f *testing.F) {
	f.Add("Id=a\nLoadState=loaded\nActiveState=active\n\nLoadState=x\nActiveState=y\n")
	f.Fuzz(func(_ *testing.T, s string) { _, _ = ParseShow(s) })
}

func FuzzReadStamp(f *testing.F) {
	file, err := Owner{Fleet: "prod"}.Stamp("[Unit]\n")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Fuzz(func(t *testing.T, s string) {
		o, intact, ok := ReadStamp(s)
		if !ok || !intact {
			return
		}
		if _, body, found := strings.Cut(s, "\n\n"); found {
			if again, err := o.Stamp(body); err == nil && again != s {
				t.Fatalf("%q became %q", s, again)
			}
		}
	})
}
