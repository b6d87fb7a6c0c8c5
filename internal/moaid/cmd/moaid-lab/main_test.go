package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/standin"
)

func TestDispatch(t *testing.T) {
	saved := commands
	defer func() { commands = saved }()
	var got string
	note := func(name string) command {
		return func(args []string) int { got = name + "(" + strings.Join(args, ",") + ")"; return 7 }
	}
	commands = map[string]command{"lspci": note("lspci"), "engine": note("engine")}
	for _, c := range []struct {
		args []string
		want string
		code int
	}{
		{[]string{"/usr/bin/lspci", "-n", "engine"}, "lspci(-n,engine)", 7},
		{[]string{"lspci"}, "lspci()", 7},
		{[]string{"/usr/local/bin/moaid-lab", "engine", "--x"}, "engine(--x)", 7},
		{[]string{"moaid-lab", "nothing"}, "", 2},
		{[]string{"moaid-lab"}, "", 2},
	} {
		got = ""
		if code := dispatch(c.args); code != c.code || got != c.want {
			t.Errorf("%q: %s, exit status %d; want %s, %d", c.args, got, code, c.want, c.code)
		}
	}
}

func TestFaults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hardware.json")
	healthy := standin.New("h100x8", "h")
	if err := healthy.Save(file); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want string // part of the file; empty: refused
	}{
		{"driver off", `"driver_loaded": false`},
		{"lost 1 3", "\"lost\": [\n    1,\n    3\n  ]"},
		{"hang 5", `"hang_seconds": 5`},
		{"driver maybe", ""},
		{"lost", ""},
		{"lost x", ""},
		{"hang -1", ""},
		{"explode", ""},
		{"", ""},
		{"clear", `"driver_loaded": true`},
	} {
		err := changeFaults(file, strings.Fields(c.args))
		if (err == nil) != (c.want != "") {
			t.Errorf("%q: %v", c.args, err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), c.want) {
			t.Errorf("%q: no %s in %s", c.args, c.want, text)
		}
	}
	if h, err := standin.Load(file); err != nil || h.HangSeconds != 0 || len(h.Lost) != 0 || h.Host != "h" {
		t.Errorf("not healthy after clear: %+v, %v", h, err)
	}
}
