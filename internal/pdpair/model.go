package pdpair

import (
	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/engineref"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
)

// model is the resource as Terraform sees it.
type model struct {
	ID       types.String   `tfsdk:"id"`
	Name     types.String   `tfsdk:"name"`
	Prefill  types.List     `tfsdk:"prefill"`
	Decode   types.List     `tfsdk:"decode"`
	Flex     types.List     `tfsdk:"flex"`
	Links    types.List     `tfsdk:"links"`
	Timeouts timeouts.Value `tfsdk:"timeouts"`

	AllowLossy    types.Bool `tfsdk:"allow_lossy"`
	AllowReleases types.Bool `tfsdk:"allow_releases"`

	Model       types.String `tfsdk:"model"`
	Conversions types.List   `tfsdk:"conversions"`
	Verified    types.Bool   `tfsdk:"verified"`
	Ends        types.Map    `tfsdk:"ends"`
}

var conversionType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"prefill": types.StringType, "decode": types.StringType, "class": types.StringType, "what": types.StringType,
}}

// conversions writes what happens between each prefill and each decode engine.
func conversions(cs []crossing) types.List {
	es := make([]attr.Value, len(cs))
	for i, c := range cs {
		es[i] = types.ObjectValueMust(conversionType.AttrTypes, map[string]attr.Value{
			"prefill": types.StringValue(c.prefill.ID()), "decode": types.StringValue(c.decode.ID()),
			"class": types.StringValue(string(c.verdict.Class)), "what": types.StringValue(c.what()),
		})
	}
	return types.ListValueMust(conversionType, es)
}

// pools reads engines and links. ok is false while a list of engines is unknown.
func (m model) pools() (p pools, ok bool) {
	var okP, okD bool
	p.prefill, okP = engineref.DecodeList(m.Prefill)
	p.decode, okD = engineref.DecodeList(m.Decode)
	p.linksKnown = !m.Links.IsUnknown()
	p.optionsKnown = !m.AllowLossy.IsUnknown() && !m.AllowReleases.IsUnknown()
	p.options = kvcompat.Options{AllowLossy: m.AllowLossy.ValueBool(), AllowReleases: m.AllowReleases.ValueBool()}
	for _, e := range m.Links.Elements() {
		p.links = append(p.links, decodeLink(e))
	}
	return p, okP && okD
}

// decodeLink reads a passed link. One of unknown nodes may join any.
func decodeLink(v attr.Value) link {
	obj, ok := v.(types.Object)
	if !ok || obj.IsUnknown() {
		return link{}
	}
	nodes, ok := obj.Attributes()["nodes"].(types.List)
	if !ok || nodes.IsUnknown() {
		return link{}
	}
	l := link{known: true}
	for _, n := range nodes.Elements() {
		o, ok := n.(types.Object)
		if !ok || o.IsUnknown() {
			return link{}
		}
		name, ok := o.Attributes()["name"].(types.String)
		if !ok || name.IsUnknown() {
			return link{}
		}
		l.nodes = append(l.nodes, name.ValueString())
	}
	return l
}

// ends writes a word for each node.
func ends(words map[string]string) types.Map {
	m := map[string]attr.Value{}
	for node, w := range words {
		m[node] = types.StringValue(w)
	}
	return types.MapValueMust(types.StringType, m)
}

// healthyEnds is what every plan asks for.
func (p pools) healthyEnds() types.Map {
	words := map[string]string{}
	for _, e := range p.nodes() {
		words[e.Node.Name] = stOK
	}
	return ends(words)
}

// settle replaces what is still unknown by null.
func (m *model) settle() {
	for _, s := range []*types.String{&m.ID, &m.Name, &m.Model} {
		if s.IsUnknown() {
			*s = types.StringNull()
		}
	}
	if m.Verified.IsUnknown() {
		m.Verified = types.BoolValue(false)
	}
	if m.Ends.IsUnknown() {
		m.Ends = types.MapNull(types.StringType)
	}
	if m.Conversions.IsUnknown() {
		m.Conversions = types.ListNull(conversionType)
	}
}

// at gives the path of the engine e's node, for errors about reaching it.
func (p pools) at(e engineref.Ref) path.Path {
	for i, x := range p.prefill {
		if x.ID() == e.ID() {
			return path.Root("prefill").AtListIndex(i).AtName("node")
		}
	}
	for i, x := range p.decode {
		if x.ID() == e.ID() {
			return path.Root("decode").AtListIndex(i).AtName("node")
		}
	}
	return path.Root("prefill")
}

func (f fault) path() path.Path {
	at := path.Root(f.attribute)
	if f.index >= 0 {
		at = at.AtListIndex(f.index)
	}
	return at
}
