package noderef

import (
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
)

// Ref is a passed node in plain Go. Values that are null or unknown are empty.
type Ref struct {
	fleet.Coordinates
	PublicKey string
	Vendor    string

	// IdentityKnown says that name and machine-id are known.
	IdentityKnown bool
	// CoordinatesKnown says that everything needed to reach the node is known, so that it may be dialled. The
	// machine-id of a node that is planned for the first time is unknown while its coordinates are known.
	CoordinatesKnown bool
	// Complete says that no part is unknown.
	Complete bool
}

// Decode reads a node. It accepts unknown and null values everywhere.
func Decode(obj types.Object) Ref {
	var r Ref
	if obj.IsNull() || obj.IsUnknown() {
		return r
	}
	a := obj.Attributes()
	var known [4]bool
	r.Name, known[0] = text(a["name"])
	r.MachineID, known[1] = text(a["machine_id"])
	r.PublicKey, known[2] = text(a["public_key"])
	r.Vendor, known[3] = text(a["vendor"])
	sshKnown := decodeSSH(a["ssh"], &r.Coordinates)
	fabricKnown := decodeFabric(a["fabric"], &r.Coordinates)
	r.IdentityKnown = known[0] && known[1]
	r.CoordinatesKnown = known[0] && sshKnown
	r.Complete = known[0] && known[1] && known[2] && known[3] && sshKnown && fabricKnown
	return r
}

// DecodeList reads a list of nodes; ok is false while the list itself is unknown or null.
func DecodeList(list types.List) (refs []Ref, ok bool) {
	if list.IsNull() || list.IsUnknown() {
		return nil, false
	}
	for _, e := range list.Elements() {
		obj, isObject := e.(types.Object)
		if !isObject {
			return nil, false
		}
		refs = append(refs, Decode(obj))
	}
	return refs, true
}

func decodeSSH(v attr.Value, c *fleet.Coordinates) bool {
	obj, ok := v.(types.Object)
	if !ok || obj.IsNull() || obj.IsUnknown() {
		return false
	}
	a := obj.Attributes()
	var known [4]bool
	c.Host, known[0] = text(a["host"])
	c.Port, known[1] = number(a["port"])
	c.Profile, known[2] = text(a["profile"])
	c.HostKey, known[3] = text(a["host_key"])
	return known == [4]bool{true, true, true, true}
}

func decodeFabric(v attr.Value, c *fleet.Coordinates) bool {
	obj, ok := v.(types.Object)
	if !ok || obj.IsUnknown() {
		return false
	}
	if obj.IsNull() {
		return true
	}
	list, ok := obj.Attributes()["endpoints"].(types.List)
	if !ok || list.IsUnknown() {
		return false
	}
	all := true
	for _, e := range list.Elements() {
		o, ok := e.(types.Object)
		if !ok || o.IsUnknown() || o.IsNull() {
			return false
		}
		a := o.Attributes()
		var ep fleet.Endpoint
		var known [3]bool
		ep.Address, known[0] = text(a["address"])
		ep.Port, known[1] = number(a["port"])
		ep.RDMADevice, known[2] = text(a["rdma_device"])
		all = all && known == [3]bool{true, true, true}
		c.Fabric = append(c.Fabric, ep)
	}
	return all
}

// text reads a string; known is true for null.
func text(v attr.Value) (s string, known bool) {
	t, ok := v.(types.String)
	if !ok || t.IsUnknown() {
		return "", false
	}
	return t.ValueString(), true
}

func number(v attr.Value) (n int, known bool) {
	i, ok := v.(types.Int64)
	if !ok || i.IsUnknown() {
		return 0, false
	}
	return int(i.ValueInt64()), true
}

// Encode is the inverse of [Decode] for known values: empty means null, except for name, machine_id, host and profile.
func Encode(r Ref) types.Object {
	t := Type().AttrTypes
	ssh := types.ObjectValueMust(sshType().AttrTypes, map[string]attr.Value{
		"host": types.StringValue(r.Host), "port": optionalNumber(r.Port),
		"profile": types.StringValue(r.Profile), "host_key": optionalText(r.HostKey),
	})
	fabric := types.ObjectNull(fabricType().AttrTypes)
	if len(r.Fabric) > 0 {
		endpoints := fabricType().AttrTypes["endpoints"].(types.ListType) //nolint:forcetypeassert // by construction
		one := endpoints.ElemType.(types.ObjectType)                      //nolint:forcetypeassert // by construction
		var elems []attr.Value
		for _, e := range r.Fabric {
			elems = append(elems, types.ObjectValueMust(one.AttrTypes, map[string]attr.Value{
				"address": types.StringValue(e.Address), "port": optionalNumber(e.Port), "rdma_device": optionalText(e.RDMADevice),
			}))
		}
		fabric = types.ObjectValueMust(fabricType().AttrTypes, map[string]attr.Value{"endpoints": types.ListValueMust(one, elems)})
	}
	return types.ObjectValueMust(t, map[string]attr.Value{
		"name": types.StringValue(r.Name), "machine_id": types.StringValue(r.MachineID),
		"public_key": optionalText(r.PublicKey), "vendor": optionalText(r.Vendor), "ssh": ssh, "fabric": fabric,
	})
}

func optionalText(s string) types.String {
	if s == "" {
		return types.StringNull()
	}
	return types.StringValue(s)
}

func optionalNumber(n int) types.Int64 {
	if n == 0 {
		return types.Int64Null()
	}
	return types.Int64Value(int64(n))
}

// Follow returns obj with the coordinates at which f knows the node now, for Read to save. Without a registration obj
// comes back as it is.
func Follow(f *fleet.Fleet, obj types.Object) types.Object {
	r := Decode(obj)
	if !r.IdentityKnown {
		return obj
	}
	now := f.Node(r.Coordinates).Coordinates()
	if now.Equal(r.Coordinates) {
		return obj
	}
	r.Coordinates = now
	return Encode(r)
}

// FollowList is [Follow] for each node of a list.
func FollowList(f *fleet.Fleet, list types.List) types.List {
	if list.IsNull() || list.IsUnknown() {
		return list
	}
	var elems []attr.Value
	for _, e := range list.Elements() {
		obj, ok := e.(types.Object)
		if !ok {
			return list
		}
		elems = append(elems, Follow(f, obj))
	}
	return types.ListValueMust(Type(), elems)
}

// identityDiffers reports whether the machine is, or may be, another one: an unknown machine-id is that of a node that
// will be made anew.
func identityDiffers(state, plan types.Object) bool {
	if state.IsNull() || plan.IsNull() {
		return false
	}
	s, p := Decode(state), Decode(plan)
	if !p.IdentityKnown {
		return s.MachineID != ""
	}
	return s.Name != p.Name || s.MachineID != p.MachineID
}

func listIdentityDiffers(state, plan types.List) bool {
	if state.IsNull() || plan.IsNull() {
		return false
	}
	if plan.IsUnknown() || len(state.Elements()) != len(plan.Elements()) {
		return true
	}
	// The order does not matter: the same nodes in another order are the same link.
	byName := map[string]types.Object{}
	for _, e := range state.Elements() {
		if obj, ok := e.(types.Object); ok {
			byName[Decode(obj).Name] = obj
		}
	}
	for _, e := range plan.Elements() {
		obj, ok := e.(types.Object)
		if !ok {
			return true
		}
		old, ok := byName[Decode(obj).Name]
		if !ok || identityDiffers(old, obj) {
			return true
		}
	}
	return false
}
