package node

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/moai-dev/terraform-provider-moai/internal/facts"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
)

func testFacts() facts.Facts {
	return facts.Facts{
		Vendor: "nvidia", DriverVersion: "550.90.07", CPUs: 64, MemoryBytes: 1 << 38, Kernel: "6.1", Arch: "amd64", MachineID: "m", Systemd: 252,
		OS:           facts.OS{PrettyName: "Debian"},
		Accelerators: []facts.Accelerator{{Index: 0, Vendor: "nvidia", Model: "H100", PCI: "0000:19:00.0"}, {Index: 1, Vendor: "nvidia", Model: "H100"}},
		NICs:         []facts.NIC{{Name: "eth0", Addresses: []string{"192.0.2.1/24"}, MTU: 1500}},
	}
}

func TestModelCarriesFacts(t *testing.T) {
	var m model
	m.setFacts(testFacts())
	if m.Vendor.ValueString() != "nvidia" || m.CPUs.ValueInt64() != 64 || len(m.Accelerators.Elements()) != 2 || len(m.NICs.Elements()) != 1 {
		t.Errorf("model = %+v", m)
	}
	obj, _ := m.Accelerators.Elements()[1].(types.Object)
	if !obj.Attributes()["pci_address"].IsNull() {
		t.Error("what is not known is not null")
	}
}

// A state must hold nothing unknown, not even after an error.
func TestSettleLeavesNothingUnknown(t *testing.T) {
	var m model
	m.factsUnknown()
	m.ID, m.PublicKey, m.MoaidVersion = types.StringUnknown(), types.StringUnknown(), types.StringUnknown()
	m.Installed, m.Ready = types.ObjectUnknown(installedType.AttrTypes), types.BoolUnknown()
	m.settle()
	for name, v := range map[string]attr.Value{
		"id": m.ID, "machine_id": m.MachineID, "public_key": m.PublicKey, "vendor": m.Vendor, "driver_version": m.DriverVersion, "cpus": m.CPUs,
		"memory_bytes": m.MemoryBytes, "os": m.OS, "kernel": m.Kernel, "arch": m.Arch, "accelerators": m.Accelerators, "nics": m.NICs,
		"moaid_version": m.MoaidVersion, "installed": m.Installed, "ready": m.Ready,
	} {
		if v.IsUnknown() {
			t.Errorf("%s is unknown", name)
		}
	}
	if m.Ready.ValueBool() {
		t.Error("an unfinished node is ready")
	}
}

func TestModelCoordinates(t *testing.T) {
	want := fleet.Coordinates{Name: "a", Host: "h", Port: 22, Profile: "p", HostKey: "k", Fabric: []fleet.Endpoint{{Address: "f", Port: 9610, RDMADevice: "mlx5_0"}}}
	m := model{Name: types.StringValue("a"), MachineID: types.StringNull()}
	m.setCoordinates(want)
	if got := m.ref(); !got.Equal(want) || !got.CoordinatesKnown {
		t.Errorf("ref() = %+v", got)
	}
	m.MachineID = types.StringUnknown()
	if got := m.ref(); !got.CoordinatesKnown || got.IdentityKnown {
		t.Errorf("before the first apply: %+v", got)
	}
}

func TestKeyMissing(t *testing.T) {
	ok := model{PublicKey: types.StringValue("k"), Installed: installedObject(healthy)}
	if ok.keyMissing() {
		t.Error("a healthy node misses its key")
	}
	gone := healthy
	gone.key = stMissing
	for name, m := range map[string]model{
		"never made":  {PublicKey: types.StringNull(), Installed: installedObject(healthy)},
		"removed":     {PublicKey: types.StringValue("k"), Installed: installedObject(gone)},
		"unknown yet": {PublicKey: types.StringValue("k"), Installed: types.ObjectNull(installedType.AttrTypes)},
	} {
		if !m.keyMissing() {
			t.Errorf("%s: key is not missing", name)
		}
	}
}

func TestSuggestionIsWhatTheMachineMeets(t *testing.T) {
	f := testFacts()
	if got, want := suggestion(f), `expect = { vendor = "nvidia", gpu = "H100", gpu_count = 2 }`; got != want {
		t.Errorf("suggestion() = %s, want %s", got, want)
	}
	if got, want := suggestion(facts.Facts{Vendor: "none"}), `expect = { vendor = "none", gpu_count = 0 }`; got != want {
		t.Errorf("suggestion() = %s, want %s", got, want)
	}
	two := 2
	if m := facts.Check(f, facts.Expect{Vendor: "nvidia", GPU: "H100", GPUCount: &two}); len(m) != 0 {
		t.Errorf("the suggestion is not met: %v", m)
	}
}

func TestUnsupported(t *testing.T) {
	if why := unsupported(testFacts()); why != "" {
		t.Errorf("a good machine is refused: %s", why)
	}
	for want, change := range map[string]func(*facts.Facts){
		"systemd":    func(f *facts.Facts) { f.Systemd = 0 },
		"riscv64":    func(f *facts.Facts) { f.Arch = "riscv64" },
		"machine-id": func(f *facts.Facts) { f.MachineID = "" },
	} {
		f := testFacts()
		change(&f)
		if why := unsupported(f); !strings.Contains(why, want) {
			t.Errorf("unsupported() = %q, want %q", why, want)
		}
	}
}
