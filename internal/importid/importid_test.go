package importid

import (
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
)

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := Parse("name=prefill-0, node=h100-0,host=192.0.2.11,profile=nvidia,host_key=ssh-ed25519 AAAA=")
	want := ID{Name: "prefill-0", Node: fleet.Coordinates{Name: "h100-0", Host: "192.0.2.11", Port: 22, Profile: "nvidia", HostKey: "ssh-ed25519 AAAA="}}
	if err != nil || got.String() != want.String() || got.Node.Port != 22 {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{
		"", "prefill-0", "name=a", "name=a,node=b,host=c", "name=A,node=b,host=c,profile=d", "name=a,name=a,node=b,host=c,profile=d",
		"name=a,node=b,host=c,profile=d,port=0", "name=a,node=b,host=c,profile=d,user=root",
	} {
		if id, err := Parse(bad); err == nil {
			t.Errorf("%q is read as %v", bad, id)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("name=prefill-0,node=h100-0,host=192.0.2.11,profile=nvidia,port=2222,host_key=SHA256:x")
	f.Add("name=,")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := Parse(s)
		if err != nil {
			return
		}
		again, err := Parse(id.String())
		if err != nil || again.String() != id.String() {
			t.Fatalf("%q: written %q and read as %v, %v", s, id.String(), again, err)
		}
	})
}
