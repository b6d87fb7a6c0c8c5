package fleet

import (
	"strings"
	"testing"
)

func TestParseCoordinates(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA=="
	got, err := ParseCoordinates("name=h100-0, host=192.0.2.11,profile=nvidia,port=2222,host_key=" + key)
	if err != nil {
		t.Fatal(err)
	}
	want := Coordinates{Name: "h100-0", Host: "192.0.2.11", Port: 2222, Profile: "nvidia", HostKey: key}
	if !got.Equal(want) {
		t.Errorf("ParseCoordinates() = %+v, want %+v", got, want)
	}
	for id, text := range map[string]string{
		"":                                  "not key=value",
		"h100-0":                            "not key=value",
		"name=h100-0":                       "needed",
		"name=A,host=h,profile=p":           "must be 1 to 63",
		"name=a,name=b,host=h,profile=p":    "twice",
		"name=a,host=h,profile=p,port=0":    "1 to 65535",
		"name=a,host=h,profile=p,color=red": "no key",
		"name=a,host=,profile=p":            "not key=value",
	} {
		if _, err := ParseCoordinates(id); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("ParseCoordinates(%q) error = %v, want %q", id, err, text)
		}
	}
}

func TestParseCoordinatesIsInverseOfImportID(t *testing.T) {
	for _, c := range []Coordinates{
		{Name: "a", Host: "192.0.2.1", Port: 22, Profile: "p"},
		{Name: "a", Host: "2001:db8::1", Port: 2222, Profile: "p", HostKey: "ssh-ed25519 AAAA+/=="},
	} {
		if got, err := ParseCoordinates(c.ImportID()); err != nil || !got.Equal(c) {
			t.Errorf("ParseCoordinates(%q) = %+v, %v", c.ImportID(), got, err)
		}
	}
}

func FuzzParseCoordinates(f *testing.F) {
	f.Add("name=h100-0,host=192.0.2.11,profile=nvidia,port=22,host_key=ssh-ed25519 AAAA==")
	f.Add("name=a,host=b")
	f.Fuzz(func(t *testing.T, id string) {
		c, err := ParseCoordinates(id)
		if err != nil {
			return
		}
		if !ValidName(c.Name) || c.Host == "" || c.Profile == "" || c.Port < 1 || c.Port > 65535 {
			t.Errorf("ParseCoordinates(%q) = %+v", id, c)
		}
	})
}

func TestParseEndpointIsInverseOfAddr(t *testing.T) {
	for _, e := range []Endpoint{{Address: "192.0.2.1", Port: 9610}, {Address: "2001:db8::1", Port: 1}, {Address: "node.example", Port: 65535}} {
		got, err := ParseEndpoint(e.Addr())
		if err != nil || got != e {
			t.Errorf("ParseEndpoint(%q) = %+v, %v", e.Addr(), got, err)
		}
	}
	for _, s := range []string{"", "host", ":1", "host:", "host:0", "host:x"} {
		if _, err := ParseEndpoint(s); err == nil {
			t.Errorf("ParseEndpoint(%q) has no error", s)
		}
	}
}
