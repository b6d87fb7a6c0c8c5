package noderef

import (
	"context"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"pgregory.net/rapid"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
)

func genRef(t *rapid.T) Ref {
	text := func(name string) string { return rapid.StringMatching(`[a-z0-9.]{1,12}`).Draw(t, name) }
	maybe := func(name string) string {
		return rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[a-zA-Z0-9:]{1,12}`)).Draw(t, name)
	}
	r := Ref{
		Coordinates: fleet.Coordinates{
			Name: text("name"), MachineID: text("machine"), Host: text("host"), Port: rapid.IntRange(1, 65535).Draw(t, "port"),
			Profile: text("profile"), HostKey: maybe("host_key"),
		},
		PublicKey: maybe("key"), Vendor: maybe("vendor"), IdentityKnown: true, CoordinatesKnown: true, Complete: true,
	}
	for range rapid.IntRange(0, 3).Draw(t, "rails") {
		r.Fabric = append(r.Fabric, fleet.Endpoint{Address: text("address"), Port: rapid.IntRange(1, 65535).Draw(t, "fabric_port"), RDMADevice: maybe("rdma")})
	}
	return r
}

func TestDecodeIsInverseOfEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := genRef(t)
		got := Decode(Encode(want))
		if !got.Equal(want.Coordinates) || got.PublicKey != want.PublicKey || got.Vendor != want.Vendor || !got.Complete {
			t.Fatalf("Decode(Encode(%+v)) = %+v", want, got)
		}
	})
}

// Each part may be unknown, or null, at plan, and nothing panics.
func TestDecodeToleratesUnknown(t *testing.T) {
	whole := Encode(Ref{Coordinates: fleet.Coordinates{Name: "a", MachineID: "m", Host: "h", Port: 22, Profile: "p", Fabric: []fleet.Endpoint{{Address: "f"}}}})
	if r := Decode(types.ObjectUnknown(Type().AttrTypes)); r.IdentityKnown || r.CoordinatesKnown || r.Complete {
		t.Errorf("an unknown node is known: %+v", r)
	}
	for _, c := range []struct {
		attribute                        string
		identity, coordinates, completed bool
	}{
		{"name", false, false, false},
		{"machine_id", false, true, false},
		{"public_key", true, true, false},
		{"vendor", true, true, false},
		{"ssh", true, false, false},
		{"fabric", true, true, false},
	} {
		a := map[string]attr.Value{}
		for k, v := range whole.Attributes() {
			a[k] = v
		}
		unknown, err := Type().AttrTypes[c.attribute].ValueFromTerraform(context.Background(), unknownOf(c.attribute))
		if err != nil {
			t.Fatal(err)
		}
		a[c.attribute] = unknown
		r := Decode(types.ObjectValueMust(Type().AttrTypes, a))
		if r.IdentityKnown != c.identity || r.CoordinatesKnown != c.coordinates || r.Complete != c.completed {
			t.Errorf("%s unknown: %+v", c.attribute, r)
		}
	}
}

func TestIdentity(t *testing.T) {
	node := func(name, machine, host string) types.Object {
		return Encode(Ref{Coordinates: fleet.Coordinates{Name: name, MachineID: machine, Host: host, Profile: "p"}})
	}
	unknownID := func(name string) types.Object {
		a := map[string]attr.Value{}
		for k, v := range node(name, "", "h").Attributes() {
			a[k] = v
		}
		a["machine_id"] = types.StringUnknown()
		return types.ObjectValueMust(Type().AttrTypes, a)
	}
	for _, c := range []struct {
		name        string
		state, plan types.Object
		want        bool
	}{
		{"same", node("a", "m", "h"), node("a", "m", "h"), false},
		{"moved", node("a", "m", "h"), node("a", "m", "h2"), false},
		{"other machine", node("a", "m", "h"), node("a", "m2", "h"), true},
		{"other name", node("a", "m", "h"), node("b", "m", "h"), true},
		{"made anew", node("a", "m", "h"), unknownID("a"), true},
		{"new", types.ObjectNull(Type().AttrTypes), node("a", "m", "h"), false},
	} {
		if got := identityDiffers(c.state, c.plan); got != c.want {
			t.Errorf("%s: identityDiffers() = %v, want %v", c.name, got, c.want)
		}
	}
	list := func(nodes ...attr.Value) types.List { return types.ListValueMust(Type(), nodes) }
	a, b, c := node("a", "1", "h"), node("b", "2", "h"), node("c", "3", "h")
	for _, x := range []struct {
		name        string
		state, plan types.List
		want        bool
	}{
		{"same", list(a, b), list(a, b), false},
		{"another order", list(a, b), list(b, a), false},
		{"another node", list(a, b), list(a, c), true},
		{"fewer", list(a, b), list(a), true},
		{"unknown", list(a, b), types.ListUnknown(Type()), true},
	} {
		if got := listIdentityDiffers(x.state, x.plan); got != x.want {
			t.Errorf("list, %s: differs = %v, want %v", x.name, got, x.want)
		}
	}
}

func TestFollow(t *testing.T) {
	f := fleet.New(context.Background(), fleet.Settings{Fleet: "test"})
	defer f.Close()
	old := fleet.Coordinates{Name: "a", MachineID: "m", Host: "old", Profile: "p"}
	obj := Encode(Ref{Coordinates: old, PublicKey: "k", Vendor: "amd"})
	if got := Follow(f, obj); !got.Equal(obj) {
		t.Errorf("nobody registered, but Follow() = %v", got)
	}
	now := old
	now.Host, now.Port, now.Fabric = "new", 2222, []fleet.Endpoint{{Address: "f", Port: 1}}
	f.Register(now)
	got := Decode(Follow(f, obj))
	if !got.Equal(now) || got.PublicKey != "k" || got.Vendor != "amd" {
		t.Errorf("Follow() = %+v, want the registered coordinates", got)
	}
	other := old
	other.MachineID = "another"
	if got := Decode(Follow(f, Encode(Ref{Coordinates: other}))); got.Host != "old" {
		t.Errorf("another machine of that name was followed to %q", got.Host)
	}
	// Defaults that are written out are no news.
	f.Register(fleet.Coordinates{Name: "b", MachineID: "m", Host: "h", Port: 22, Profile: "p"})
	plain := Encode(Ref{Coordinates: fleet.Coordinates{Name: "b", MachineID: "m", Host: "h", Profile: "p"}})
	if got := Follow(f, plain); !got.Equal(plain) {
		t.Errorf("port 22 was written back: %v", got)
	}
}

func unknownOf(attribute string) tftypes.Value {
	return tftypes.NewValue(Type().AttrTypes[attribute].TerraformType(context.Background()), tftypes.UnknownValue)
}
