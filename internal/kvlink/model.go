package kvlink

import (
	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
)

// model is the resource as Terraform sees it.
type model struct {
	ID         types.String   `tfsdk:"id"`
	Name       types.String   `tfsdk:"name"`
	Nodes      types.List     `tfsdk:"nodes"`
	Transport  types.String   `tfsdk:"transport"`
	Encryption types.String   `tfsdk:"encryption"`
	Streams    types.Int64    `tfsdk:"streams"`
	Timeouts   timeouts.Value `tfsdk:"timeouts"`
	Verified   types.Bool     `tfsdk:"verified"`
	Ends       types.Map      `tfsdk:"ends"`
}

// spec is the link in plain Go; ok is false unless there are two nodes, of which any part may be unknown.
func (m model) spec() (s spec, ok bool) {
	refs, known := noderef.DecodeList(m.Nodes)
	if !known || len(refs) != 2 {
		return spec{}, false
	}
	return spec{
		name: m.Name.ValueString(), nodes: [2]noderef.Ref{refs[0], refs[1]},
		encryption: api.Encryption(m.Encryption.ValueString()), streams: int(m.Streams.ValueInt64()),
	}, true
}

// setEnds writes the status of each end.
func (m *model) setEnds(ends map[string]string) {
	elems := map[string]attr.Value{}
	for node, word := range ends {
		elems[node] = types.StringValue(word)
	}
	m.Ends = types.MapValueMust(types.StringType, elems)
}

// healthyEnds is what every plan asks for.
func (s spec) healthyEnds() map[string]string {
	return map[string]string{s.nodes[0].Name: stOK, s.nodes[1].Name: stOK}
}

// settle replaces what is still unknown by null: a state must not hold anything unknown.
func (m *model) settle() {
	if m.Verified.IsUnknown() {
		m.Verified = types.BoolValue(false)
	}
	if m.Ends.IsUnknown() {
		m.Ends = types.MapNull(types.StringType)
	}
}
