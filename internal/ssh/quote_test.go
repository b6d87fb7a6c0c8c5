package ssh

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// argument draws what a program can receive: any bytes but NUL.
func argument() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(),
		rapid.Map(rapid.SliceOf(rapid.ByteRange(1, 255)), func(b []byte) string { return string(b) }),
		rapid.SampledFrom([]string{"", "-n", "a b", `'`, `'\''`, `"`, "$HOME", "`id`", "$(id)", "a;b", "*", "~", "~root", "\n", "a\\", "!x", "#x", "x=1", "\xff\xfe"}),
	).Filter(func(s string) bool { return !strings.Contains(s, "\x00") })
}

// TestQuoteThroughShell: a real shell hands every argument over unchanged.
func TestQuoteThroughShell(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh on this machine")
	}
	rapid.Check(t, func(t *rapid.T) {
		args := rapid.SliceOfN(argument(), 1, 5).Draw(t, "args")
		line, err := Join(append([]string{"printf", `%s\0`}, args...))
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(sh, "-c", line).Output()
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, args) {
			t.Fatalf("%q came through as %q", args, got)
		}
	})
}

func TestSplitInvertsJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		argv := rapid.SliceOfN(argument(), 1, 6).Draw(t, "argv")
		if argv[0] == "" {
			argv[0] = "x"
		}
		line, err := Join(argv)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Split(line)
		if err != nil || !slices.Equal(got, argv) {
			t.Fatalf("%q became %q (%v)", argv, got, err)
		}
	})
}

func TestJoinRefuses(t *testing.T) {
	for _, argv := range [][]string{nil, {}, {""}, {"a", "b\x00c"}} {
		if line, err := Join(argv); err == nil {
			t.Errorf("Join(%q) = %q, want an error", argv, line)
		}
	}
}

func TestSplitRefusesShellSyntax(t *testing.T) {
	for _, line := range []string{"a; b", "a | b", "$x", "`x`", "a > b", "'open", `end\`, "a &", "(a)", "a*", "~", "x=1", `"a"`} {
		if argv, err := Split(line); err == nil {
			t.Errorf("Split(%q) = %q, want an error", line, argv)
		}
	}
}

func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a", "a b", "'", "''", `\`, "\n", "é", "\xff", "$(x)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "\x00") {
			t.Skip("no program can receive NUL")
		}
		got, err := Split(Quote(s))
		if err != nil || len(got) != 1 || got[0] != s {
			t.Fatalf("%q became %q (%v)", s, got, err)
		}
	})
}

func FuzzSplit(f *testing.F) {
	f.Add("a 'b c' d\\ e")
	f.Add("sudo -n -- sh -c '# moai:inspect\nx' moai - /l")
	f.Fuzz(func(t *testing.T, line string) {
		argv, err := Split(line)
		if err != nil || len(argv) == 0 || argv[0] == "" || strings.Contains(line, "\x00") {
			return
		}
		joined, err := Join(argv)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Split(joined)
		if err != nil || !slices.Equal(argv, again) {
			t.Fatalf("%q became %q (%v)", argv, again, err)
		}
	})
}
