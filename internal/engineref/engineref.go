// Package engineref is the schema and the model of an engine passed whole to
// another resource, as in
//
//	prefill = [moai_engine.prefill]
//
// A passed engine holds what a pair or a router decides by, and the node on which
// it runs, whose coordinates are followed (see package noderef). It holds nothing
// that a restart of the engine changes.
package engineref

import (
	"context"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
)

// Ref is a passed engine in plain Go. Values that are unknown are empty.
type Ref struct {
	Name        string
	Node        noderef.Ref
	Kind        string
	Role        engines.Role
	Connector   engines.Connector
	Model       string // served name
	Fingerprint string // JSON of kvcache.Fingerprint

	// Known says that everything but the node is known.
	Known bool
}

// ID names the engine in messages: node/engine.
func (r Ref) ID() string { return r.Node.Name + "/" + r.Name }

// NestedObject is the element of a list of passed engines.
func NestedObject() schema.NestedAttributeObject {
	return schema.NestedAttributeObject{Attributes: attributes()}
}

// PlacedObject is the element of a list of engines of which only name and node
// matter.
func PlacedObject() schema.NestedAttributeObject {
	all := attributes()
	return schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{"name": all["name"], "node": all["node"]}}
}

func attributes() map[string]schema.Attribute {
	text := func(d string) schema.Attribute {
		return schema.StringAttribute{Optional: true, MarkdownDescription: d}
	}
	node := noderef.Attribute("The node that the engine runs on.")
	// Another machine under an engine is a change of the pool, not another pool.
	node.PlanModifiers = nil
	node.Required, node.Optional = false, true
	return map[string]schema.Attribute{
		"name":           text("Name of the engine."),
		"node":           node,
		"kind":           text("Kind of the engine."),
		"role":           text("Role of the engine."),
		"kv_connector":   text("How KV leaves and enters the engine."),
		"kv_fingerprint": text("Format and meaning of the engine's KV cache, as JSON."),
		"model": schema.SingleNestedAttribute{
			Optional: true, MarkdownDescription: "What the engine runs.",
			Attributes: map[string]schema.Attribute{"id": text("Name of the model.")},
		},
	}
}

// Decode reads an engine. It accepts unknown values everywhere.
func Decode(obj types.Object) Ref {
	var r Ref
	if obj.IsNull() || obj.IsUnknown() {
		return r
	}
	a := obj.Attributes()
	known := true
	text := func(v attr.Value) string {
		s, ok := v.(types.String)
		known = known && ok && !s.IsUnknown()
		return s.ValueString()
	}
	r.Name, r.Kind, r.Fingerprint = text(a["name"]), text(a["kind"]), text(a["kv_fingerprint"])
	r.Role, r.Connector = engines.Role(text(a["role"])), engines.Connector(text(a["kv_connector"]))
	if m, ok := a["model"].(types.Object); ok && !m.IsUnknown() {
		r.Model = text(m.Attributes()["id"])
	} else {
		known = false
	}
	if n, ok := a["node"].(types.Object); ok {
		r.Node = noderef.Decode(n)
	}
	r.Known = known && r.Node.Name != ""
	return r
}

// DecodeList reads a list of engines; ok is false while the list itself is
// unknown.
func DecodeList(list types.List) (refs []Ref, ok bool) {
	if list.IsUnknown() {
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

// FollowList returns the list with the coordinates at which f knows the nodes
// now, for Read to save.
func FollowList(ctx context.Context, f *fleet.Fleet, list types.List) types.List {
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
		node, ok := a["node"].(types.Object)
		if !ok {
			return list
		}
		a["node"] = noderef.Follow(f, node)
		elems = append(elems, types.ObjectValueMust(obj.AttributeTypes(ctx), a))
	}
	return types.ListValueMust(list.ElementType(ctx), elems)
}

// Whole is the validator of lists of passed objects: the framework looks for
// required attributes inside the elements of a list even while an element is
// unknown, as it always is during validation, so there attributes are optional and
// this validator asks for them. example says what to write.
func Whole(example string, required ...string) validator.List {
	return whole{example: example, required: required}
}

type whole struct {
	example  string
	required []string
}

// Description implements validator.List.
func (w whole) Description(context.Context) string {
	return "every element must be a whole resource, as in " + w.example
}

// MarkdownDescription implements validator.List.
func (w whole) MarkdownDescription(ctx context.Context) string { return w.Description(ctx) }

// ValidateList implements validator.List.
func (w whole) ValidateList(_ context.Context, req validator.ListRequest, resp *validator.ListResponse) {
	for i, e := range req.ConfigValue.Elements() {
		at := req.Path.AtListIndex(i)
		obj, ok := e.(types.Object)
		switch {
		case !ok || obj.IsUnknown():
			continue
		case obj.IsNull():
			resp.Diagnostics.AddAttributeError(at, "Element is null", "Give a whole resource, as in "+w.example+".")
			continue
		}
		for _, name := range w.required {
			if v, ok := obj.Attributes()[name]; ok && v.IsNull() {
				resp.Diagnostics.AddAttributeError(at.AtName(name), "Missing value", "Give the resource whole, as in "+w.example+".")
			}
		}
	}
}

// Required are the parts of a passed engine that [Whole] asks for.
func Required() []string { return slices.Sorted(maps.Keys(attributes())) }
