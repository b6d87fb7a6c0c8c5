package node

import (
	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/facts"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
	"github.com/moai-dev/terraform-provider-moai/internal/noderef"
)

// model is the resource as Terraform sees it. Nested values stay framework objects, since any part of them may be
// unknown at plan.
type model struct {
	Name      types.String   `tfsdk:"name"`
	SSH       types.Object   `tfsdk:"ssh"`
	Fabric    types.Object   `tfsdk:"fabric"`
	Expect    types.Object   `tfsdk:"expect"`
	PlanProbe types.String   `tfsdk:"plan_probe"`
	Timeouts  timeouts.Value `tfsdk:"timeouts"`

	ID            types.String `tfsdk:"id"`
	MachineID     types.String `tfsdk:"machine_id"`
	PublicKey     types.String `tfsdk:"public_key"`
	Vendor        types.String `tfsdk:"vendor"`
	Accelerators  types.List   `tfsdk:"accelerators"`
	DriverVersion types.String `tfsdk:"driver_version"`
	CPUs          types.Int64  `tfsdk:"cpus"`
	MemoryBytes   types.Int64  `tfsdk:"memory_bytes"`
	OS            types.String `tfsdk:"os"`
	Kernel        types.String `tfsdk:"kernel"`
	Arch          types.String `tfsdk:"arch"`
	NICs          types.List   `tfsdk:"nics"`
	MoaidVersion  types.String `tfsdk:"moaid_version"`
	Installed     types.Object `tfsdk:"installed"`
	Ready         types.Bool   `tfsdk:"ready"`
}

var stringType = types.StringType

var acceleratorType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"index": types.Int64Type, "vendor": types.StringType, "model": types.StringType, "name": types.StringType,
	"pci_address": types.StringType, "memory_bytes": types.Int64Type, "uuid": types.StringType,
}}

var nicType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"name": types.StringType, "addresses": types.ListType{ElemType: types.StringType}, "mtu": types.Int64Type, "speed_mbps": types.Int64Type,
}}

var installedType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"moaid": types.StringType, "unit": types.StringType, "config": types.StringType, "marker": types.StringType,
	"key": types.StringType, "service": types.StringType, "boot": types.StringType,
}}

// ref is the node as other resources get it.
func (m model) ref() noderef.Ref {
	return noderef.Decode(types.ObjectValueMust(noderef.Type().AttrTypes, map[string]attr.Value{
		"name": m.Name, "machine_id": m.MachineID, "public_key": m.PublicKey, "vendor": m.Vendor, "ssh": m.SSH, "fabric": m.Fabric,
	}))
}

// expectation is the expect block; unknown parts expect nothing yet.
func (m model) expectation() facts.Expect {
	var e facts.Expect
	if m.Expect.IsNull() || m.Expect.IsUnknown() {
		return e
	}
	a := m.Expect.Attributes()
	if v, ok := a["vendor"].(types.String); ok {
		e.Vendor = v.ValueString()
	}
	if v, ok := a["gpu"].(types.String); ok {
		e.GPU = v.ValueString()
	}
	if v, ok := a["gpu_count"].(types.Int64); ok && !v.IsNull() && !v.IsUnknown() {
		n := int(v.ValueInt64())
		e.GPUCount = &n
	}
	return e
}

// setCoordinates writes coordinates as Read and import know them.
func (m *model) setCoordinates(c fleet.Coordinates) {
	obj := noderef.Encode(noderef.Ref{Coordinates: c}).Attributes()
	m.SSH, _ = obj["ssh"].(types.Object)
	m.Fabric, _ = obj["fabric"].(types.Object)
}

// setFacts writes everything that a machine says about itself.
func (m *model) setFacts(f facts.Facts) {
	m.MachineID = types.StringValue(f.MachineID)
	m.Vendor = types.StringValue(f.Vendor)
	m.DriverVersion = textOrNull(f.DriverVersion)
	m.CPUs = types.Int64Value(int64(f.CPUs))
	m.MemoryBytes = types.Int64Value(f.MemoryBytes)
	m.OS = textOrNull(f.OS.PrettyName)
	m.Kernel = textOrNull(f.Kernel)
	m.Arch = textOrNull(f.Arch)
	accelerators := make([]attr.Value, len(f.Accelerators))
	for i, a := range f.Accelerators {
		accelerators[i] = types.ObjectValueMust(acceleratorType.AttrTypes, map[string]attr.Value{
			"index": types.Int64Value(int64(a.Index)), "vendor": types.StringValue(a.Vendor), "model": textOrNull(a.Model),
			"name": textOrNull(a.Name), "pci_address": textOrNull(a.PCI), "memory_bytes": types.Int64Value(a.MemoryBytes), "uuid": textOrNull(a.UUID),
		})
	}
	m.Accelerators = types.ListValueMust(acceleratorType, accelerators)
	nics := make([]attr.Value, len(f.NICs))
	for i, n := range f.NICs {
		addresses := make([]attr.Value, len(n.Addresses))
		for j, a := range n.Addresses {
			addresses[j] = types.StringValue(a)
		}
		nics[i] = types.ObjectValueMust(nicType.AttrTypes, map[string]attr.Value{
			"name": types.StringValue(n.Name), "addresses": types.ListValueMust(types.StringType, addresses),
			"mtu": types.Int64Value(int64(n.MTU)), "speed_mbps": types.Int64Value(int64(n.SpeedMbps)),
		})
	}
	m.NICs = types.ListValueMust(nicType, nics)
}

// factsUnknown makes everything unknown that only the machine can say.
func (m *model) factsUnknown() {
	m.MachineID, m.Vendor, m.DriverVersion = types.StringUnknown(), types.StringUnknown(), types.StringUnknown()
	m.CPUs, m.MemoryBytes = types.Int64Unknown(), types.Int64Unknown()
	m.OS, m.Kernel, m.Arch = types.StringUnknown(), types.StringUnknown(), types.StringUnknown()
	m.Accelerators, m.NICs = types.ListUnknown(acceleratorType), types.ListUnknown(nicType)
}

// setStatus writes the status of what was installed.
func (m *model) setStatus(s status) { m.Installed = installedObject(s) }

func installedObject(s status) types.Object {
	return types.ObjectValueMust(installedType.AttrTypes, map[string]attr.Value{
		"moaid": textOrNull(s.moaid), "unit": textOrNull(s.unit), "config": textOrNull(s.config), "marker": textOrNull(s.marker),
		"key": textOrNull(s.key), "service": textOrNull(s.service), "boot": textOrNull(s.boot),
	})
}

// keyMissing reports whether the daemon will make a new key at its next start.
func (m model) keyMissing() bool {
	if m.PublicKey.IsNull() || m.Installed.IsNull() || m.Installed.IsUnknown() {
		return true
	}
	key, ok := m.Installed.Attributes()["key"].(types.String)
	return !ok || key.ValueString() != stOK
}

// markerForeign reports whether the refresh found the machine to be somebody else's.
func (m model) markerForeign() bool {
	marker, ok := m.Installed.Attributes()["marker"].(types.String)
	return ok && marker.ValueString() == stForeign
}

// settle replaces what is still unknown by null, as a state must not hold anything unknown, not even after an error.
func (m *model) settle() {
	for _, s := range []*types.String{&m.ID, &m.MachineID, &m.PublicKey, &m.Vendor, &m.DriverVersion, &m.OS, &m.Kernel, &m.Arch, &m.MoaidVersion} {
		if s.IsUnknown() {
			*s = types.StringNull()
		}
	}
	for _, n := range []*types.Int64{&m.CPUs, &m.MemoryBytes} {
		if n.IsUnknown() {
			*n = types.Int64Null()
		}
	}
	if m.Accelerators.IsUnknown() {
		m.Accelerators = types.ListNull(acceleratorType)
	}
	if m.NICs.IsUnknown() {
		m.NICs = types.ListNull(nicType)
	}
	if m.Installed.IsUnknown() {
		m.Installed = types.ObjectNull(installedType.AttrTypes)
	}
	if m.Ready.IsUnknown() {
		m.Ready = types.BoolValue(false)
	}
}

func textOrNull(s string) types.String {
	if s == "" {
		return types.StringNull()
	}
	return types.StringValue(s)
}
