package acctest

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/moai-dev/terraform-provider-moai/internal/payload"
	"github.com/moai-dev/terraform-provider-moai/internal/provider"
	"github.com/moai-dev/terraform-provider-moai/internal/ssh/sshtest"
)

// Fleet is some machines.
type Fleet struct {
	t    *testing.T
	net  *network
	moai *payload.Source
	// Hosts by name.
	Hosts map[string]*Host
}

// Host is one machine: its SSH server and its daemon.
type Host struct {
	*sshtest.Machine
	Server *sshtest.Server
	Daemon *Daemon
	name   string
}

// Accelerators are what a machine has.
type Accelerators struct {
	Vendor string // nvidia, amd or none
	Count  int
}

// NewFleet makes an empty fleet and checks that there is a CLI.
func NewFleet(t *testing.T) *Fleet {
	t.Helper()
	CLI(t)
	return &Fleet{t: t, net: newNetwork(), moai: Payload(t, "moaid of the tests"), Hosts: map[string]*Host{}}
}

// Add makes a machine.
func (f *Fleet) Add(name string, a Accelerators) *Host {
	f.t.Helper()
	m := sshtest.NewMachine(f.t)
	id := sha256.Sum256([]byte(name))
	machineID := hex.EncodeToString(id[:16])
	m.SetProbe(probeOf(a, machineID))
	m.SetFile("/etc/machine-id", sshtest.Entry{Content: []byte(machineID + "\n"), Mode: 0o444})
	h := &Host{Machine: m, name: name}
	h.Daemon = newDaemon(f.net, m)
	m.OnUnit = h.Daemon.unit
	h.Server = m.Serve()
	f.Hosts[name] = h
	return h
}

// MachineID is what the machine says it is.
func (h *Host) MachineID() string {
	e, _ := h.File("/etc/machine-id")
	return strings.TrimSpace(string(e.Content))
}

// Reinstall makes the machine another one: new machine-id, nothing of ours on it.
func (h *Host) Reinstall(machineID string) {
	for _, p := range []string{"/opt/moai", "/etc/moai", "/var/lib/moai", "/run/moai", "/etc/systemd/system/moai-kvd.service"} {
		h.Remove(p)
	}
	h.SetUnit("moai-kvd.service", func(u *sshtest.Unit) { *u = sshtest.Unit{Active: "inactive"} })
	h.Daemon.wipe()
	h.SetFile("/etc/machine-id", sshtest.Entry{Content: []byte(machineID + "\n"), Mode: 0o444})
	h.SetProbe(map[string]sshtest.ProbeSection{"machine-id": {Text: machineID + "\n"}})
}

func probeOf(a Accelerators, machineID string) map[string]sshtest.ProbeSection {
	out := map[string]sshtest.ProbeSection{"machine-id": {Text: machineID + "\n"}}
	var pci, csv strings.Builder
	csv.WriteString("index, name, uuid, pci.bus_id, memory.total [MiB], driver_version, mig.mode.current\n")
	for i := range a.Count {
		switch a.Vendor {
		case "nvidia":
			fmt.Fprintf(&pci, "0000:%02x:00.0 3D controller [0302]: NVIDIA Corporation GH100[H100 SXM5 80GB] [10de:2330] (rev a1)\n", 0x19+i)
			fmt.Fprintf(&csv, "%d, NVIDIA H100 80GB HBM3, GPU-%08d-0000-0000-0000-000000000000, 00000000:%02X:00.0, 81559 MiB, 550.90.07, Disabled\n", i, i, 0x19+i)
		case "amd":
			fmt.Fprintf(&pci, "0000:%02x:00.0 Processing accelerators [1200]: Advanced Micro Devices, Inc. [AMD/ATI] Device [1002:74a1]\n", 0x19+i)
		}
	}
	out["lspci"] = sshtest.ProbeSection{Text: pci.String()}
	if a.Vendor == "nvidia" {
		out["nvidia-smi"] = sshtest.ProbeSection{Text: csv.String()}
	}
	return out
}

// Payload makes binaries of a given content for both architectures.
func Payload(t *testing.T, content string) *payload.Source {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(content))
	e := payload.Entry{File: "moaid.gz", SHA256: hex.EncodeToString(sum[:]), Size: int64(len(content))}
	m, err := json.Marshal(payload.Manifest{Moaid: map[string]payload.Entry{"amd64": e, "arm64": e}})
	if err != nil {
		t.Fatal(err)
	}
	return payload.NewSource(fstest.MapFS{"moaid.gz": {Data: buf.Bytes()}, payload.ManifestName: {Data: m}})
}

// Factories are the provider with the fleet's payload.
func (f *Fleet) Factories() map[string]func() (tfprotov6.ProviderServer, error) {
	return f.FactoriesWith(f.moai)
}

// FactoriesWith are the provider with another payload, as after an upgrade of the provider.
func (f *Fleet) FactoriesWith(p *payload.Source) map[string]func() (tfprotov6.ProviderServer, error) {
	return map[string]func() (tfprotov6.ProviderServer, error){
		"moai": providerserver.NewProtocol6WithError(provider.New("test", provider.WithPayload(p))()),
	}
}

// ProviderBlock configures the provider with a profile for each machine, named as the machine.
func (f *Fleet) ProviderBlock() string { return f.ProviderBlockFor("test") }

// ProviderBlockFor is [Fleet.ProviderBlock] with another ownership domain.
func (f *Fleet) ProviderBlockFor(fleetName string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "provider \"moai\" {\n  fleet = %q\n  ssh = { connect_timeout = \"2s\" }\n  ssh_profiles = {\n", fleetName)
	for name, h := range f.Hosts {
		fmt.Fprintf(&b, "    %s = {\n      user        = \"ops\"\n      private_key = <<-EOT\n%s\n      EOT\n    }\n", name, strings.TrimSpace(h.Server.ClientKey().Reveal()))
	}
	b.WriteString("  }\n}\n")
	return b.String()
}

// SSHBlock is the value of a node's ssh attribute.
func (h *Host) SSHBlock() string {
	return fmt.Sprintf("{ host = %q, port = %d, profile = %q, host_key = %q }", h.Server.Host(), h.Server.Port(), h.name, h.Server.HostKey())
}

// Node is a moai_node block for the machine, with more lines in it. The block is named as the machine, with _ for -.
func (h *Host) Node(more string) string {
	return fmt.Sprintf("resource \"moai_node\" %q {\n  name = %q\n  ssh  = %s\n%s\n}\n", Label(h.name), h.name, h.SSHBlock(), more)
}

// Label is the name of a machine's block.
func Label(name string) string { return strings.ReplaceAll(name, "-", "_") }

// ImportID is the machine's id for terraform import.
func (h *Host) ImportID() string {
	return fmt.Sprintf("name=%s,host=%s,port=%d,profile=%s,host_key=%s", h.name, h.Server.Host(), h.Server.Port(), h.name, h.Server.HostKey())
}
