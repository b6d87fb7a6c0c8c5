package fleet

import (
	"errors"
	"strings"
	"testing"
)

func TestHold(t *testing.T) {
	t.Parallel()
	name := func(n string) []Hold { return []Hold{{Key: "engine " + n, Attribute: "name", Holder: "engine " + n}} }
	listen := func(addr string) []Hold {
		return []Hold{{Key: "port 8000", Part: addr, Attribute: "listen", Holder: "router at " + addr}}
	}
	f := New(t.Context(), Settings{Fleet: "prod"})
	t.Cleanup(f.Close)
	for n, c := range []struct {
		instance string
		holds    []Hold
		want     string // attribute refused
	}{
		{"1", name("x"), ""},
		{"1", name("x"), ""}, // planned again, as for a replacement
		{"2", name("y"), ""},
		{"3", name("x"), "name"},
		{"1", name("z"), ""}, // renamed: x is free
		{"3", name("x"), ""},
		{"2", name("z"), "name"},
		{"4", listen("192.0.2.1"), ""},
		{"5", listen("192.0.2.2"), ""},
		{"6", listen("192.0.2.1"), "listen"},
		{"7", listen(""), "listen"},
		{"8", nil, ""},
	} {
		err := f.Hold(c.instance, c.holds)
		var held *HeldError
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%d: %v", n, err)
		case c.want != "" && (!errors.As(err, &held) || held.DiagnosticAttribute() != c.want || !strings.Contains(err.Error(), held.Other.Holder)):
			t.Errorf("%d: got %v, want a refusal at %s", n, err, c.want)
		}
	}
}
