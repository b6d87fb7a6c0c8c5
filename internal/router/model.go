package router

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
	"github.com/moai-dev/terraform-provider-moai/internal/service"
)

// model is the resource as Terraform sees it.
type model struct {
	Name      types.String   `tfsdk:"name"`
	Node      types.Object   `tfsdk:"node"`
	Pairs     types.List     `tfsdk:"pairs"`
	Listen    types.String   `tfsdk:"listen"`
	Timeouts  timeouts.Value `tfsdk:"timeouts"`
	ID        types.String   `tfsdk:"id"`
	Endpoint  types.String   `tfsdk:"endpoint"`
	PublicKey types.String   `tfsdk:"public_key"`
	Ready     types.Bool     `tfsdk:"ready"`
	Installed types.Object   `tfsdk:"installed"`
	Trust     types.Map      `tfsdk:"trust"`
}

var installedType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"unit": types.StringType, "config": types.StringType, "key": types.StringType, "service": types.StringType, "boot": types.StringType,
}}

// status is what became of a router, one word for each part.
type status struct {
	service.Status
	key string
}

var healthy = status{Status: service.Healthy, key: service.OK}

func installedObject(s status) types.Object {
	return types.ObjectValueMust(installedType.AttrTypes, map[string]attr.Value{
		"unit": types.StringValue(s.Unit), "config": types.StringValue(s.Config), "key": types.StringValue(s.key),
		"service": types.StringValue(s.Service), "boot": types.StringValue(s.Boot),
	})
}

// spec reads the model; ok is false while something is unknown that names engines
// or nodes.
func (m model) spec() (s spec, ok bool) {
	s = spec{name: m.Name.ValueString(), node: noderef.Decode(m.Node), listen: m.Listen.ValueString()}
	ok = !m.Name.IsUnknown() && !m.Pairs.IsUnknown() && !m.Listen.IsUnknown() && s.node.Name != ""
	for _, e := range m.Pairs.Elements() {
		p := decodePair(e)
		ok = ok && p.known
		s.pairs = append(s.pairs, p)
	}
	return s, ok
}

func decodePair(v attr.Value) pair {
	obj, ok := v.(types.Object)
	if !ok || obj.IsUnknown() {
		return pair{}
	}
	a := obj.Attributes()
	p := pair{known: true}
	for name, dst := range map[string]*string{"name": &p.name, "model": &p.model} {
		s, ok := a[name].(types.String)
		p.known = p.known && ok && !s.IsUnknown()
		*dst = s.ValueString()
	}
	for name, dst := range map[string]*[]engineref.Ref{"prefill": &p.prefill, "decode": &p.decode} {
		list, isList := a[name].(types.List)
		if !isList {
			return pair{}
		}
		refs, known := engineref.DecodeList(list)
		p.known = p.known && known
		for _, r := range refs {
			p.known = p.known && r.Name != "" && r.Node.Name != ""
		}
		*dst = refs
	}
	return p
}

// followPairs returns the pairs with the coordinates at which f knows the nodes
// now.
func followPairs(ctx context.Context, f *fleet.Fleet, list types.List) types.List {
	if list.IsNull() || list.IsUnknown() {
		return list
	}
	var elems []attr.Value
	for _, e := range list.Elements() {
		obj, ok := e.(types.Object)
		if !ok || obj.IsNull() || obj.IsUnknown() {
			return list
		}
		a := obj.Attributes()
		for _, name := range []string{"prefill", "decode"} {
			l, ok := a[name].(types.List)
			if !ok {
				return list
			}
			a[name] = engineref.FollowList(ctx, f, l)
		}
		elems = append(elems, types.ObjectValueMust(obj.AttributeTypes(ctx), a))
	}
	return types.ListValueMust(list.ElementType(ctx), elems)
}

// words writes a word for each node.
func words(m map[string]string) types.Map {
	vals := map[string]attr.Value{}
	for node, w := range m {
		vals[node] = types.StringValue(w)
	}
	return types.MapValueMust(types.StringType, vals)
}

// healthyTrust is what every plan asks for.
func (s spec) healthyTrust() types.Map {
	m := map[string]string{}
	for _, e := range s.nodes() {
		m[e.Node.Name] = service.OK
	}
	return words(m)
}

// keyLost reports whether the router's next key is another one.
func (m model) keyLost() bool {
	if m.PublicKey.IsNull() || m.Installed.IsNull() || m.Installed.IsUnknown() {
		return true
	}
	key, ok := m.Installed.Attributes()["key"].(types.String)
	return !ok || key.ValueString() != service.OK
}
