package host

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func FuzzParseFiles(f *testing.F) {
	f.Add("\ncan gzip\nfile 0 "+strings.Repeat("a", 64)+" 644 root root 3 regular file\ngone 1\n", 2)
	f.Add("file 0 - 755 root root 4096 directory", 1)
	f.Add("error 0 stat: x", 1)
	f.Fuzz(func(t *testing.T, text string, n int) {
		if n < 0 || n > 16 {
			return
		}
		paths := make([]string, n)
		for i := range paths {
			paths[i] = "/p"
		}
		files, _, err := parseFiles(text, paths)
		if err != nil {
			return
		}
		for _, s := range files {
			if s.Path != "/p" || s.Kind == "file" && len(s.SHA256) != 64 {
				t.Fatalf("%+v", s)
			}
		}
	})
}

func FuzzParseLock(f *testing.F) {
	for _, s := range []string{"mine 1 ", "mine 7 fleet prod, moai_node.a", "held 12 fleet prod, moai_node.b", "held -3 x", "held 9223372036854775807 x", "mine 0 ", "lost", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, ok := parseLock(s)
		if !ok {
			if a != (lockAnswer{}) {
				t.Fatalf("%q is refused and gives %+v", s, a)
			}
			return
		}
		if a.mine && a.n < 1 || time.Duration(a.n)*time.Second < 0 && !a.mine {
			t.Fatalf("%q: %+v", s, a)
		}
		word := "held"
		if a.mine {
			word = "mine"
		}
		if again, ok := parseLock(fmt.Sprintf("%s %d %s", word, a.n, a.owner)); !ok || again != a {
			t.Fatalf("%q: %+v is read back as %+v", s, a, again)
		}
	})
}

func FuzzFileState(f *testing.F) {
	f.Add(strings.Repeat("a", 64) + " 644 root root 3 regular file")
	f.Add("- 755 moai moai 4096 directory")
	f.Add("- 777 root root 7 symbolic link")
	f.Fuzz(func(t *testing.T, s string) {
		var got FileState
		if got.parse(s) == nil && (!got.Exists() || got.Kind == "file" && len(got.SHA256) != 64) {
			t.Fatalf("%q: %+v", s, got)
		}
	})
}

func TestScriptsAreWhole(t *testing.T) {
	for _, verb := range []string{"inspect", "put-file", "set-attr", "read-file", "make-dir", "remove", "ensure-user", "remove-user", "unit", "journal", "lock", "probe"} {
		s := script(verb)
		if !strings.HasPrefix(s, "# moai:"+verb+"\n") || len(s) > 100<<10 {
			t.Errorf("%s: %.40q…, %d bytes", verb, s, len(s))
		}
	}
}
