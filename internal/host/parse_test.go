package host

import (
	"strings"
	"testing"
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

func TestScriptsAreWhole(t *testing.T) {
	for _, verb := range []string{"inspect", "put-file", "set-attr", "read-file", "make-dir", "remove", "ensure-user", "remove-user", "unit", "journal", "lock", "probe"} {
		s := script(verb)
		if !strings.HasPrefix(s, "# moai:"+verb+"\n") || len(s) > 100<<10 {
			t.Errorf("%s: %.40q…, %d bytes", verb, s, len(s))
		}
	}
}
