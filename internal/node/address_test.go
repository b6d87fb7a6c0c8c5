package node

import (
	"strings"
	"testing"
)

func TestCheckAddress(t *testing.T) {
	for _, c := range []struct {
		in       string
		specific bool
		want     string // part of the fault
	}{
		{"192.0.2.1", true, ""},
		{"2001:db8::1", true, ""},
		{"fe80::1%eth0", false, ""},
		{"h100-0", false, ""},
		{"h100_0.rack-1.example.", false, ""},
		{"0.0.0.0", false, ""},
		{"0.0.0.0", true, "every address"},
		{"::", true, "every address"},
		{"192.0.2.1:9610", true, "holds a port"},
		{"[2001:db8::1]:22", false, "holds a port"},
		{"[2001:db8::1]", false, "no brackets"},
		{"example.com:22", false, "port goes into port"},
		{"ops@example.com", false, "neither"},
		{"-oProxyCommand=x", false, "neither"},
		{"a b", false, "neither"},
		{"", false, "neither"},
	} {
		if got := checkAddress(c.in, c.specific); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("checkAddress(%q, %v) = %q, want %q", c.in, c.specific, got, c.want)
		}
	}
}
