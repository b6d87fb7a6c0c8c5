package facts

import (
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func fixture(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// plain is a probe of a host without accelerators.
func plain() Raw {
	return Raw{
		"os-release": {Text: "PRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\nID=ubuntu\nVERSION_ID=\"24.04\"\n"}, "uname": {Text: "Linux 6.8.0-49-generic x86_64"},
		"machine-id": {Text: "0123456789abcdef0123456789abcdef"}, "boot-id": {Text: "b"}, "hostname": {Text: "h"},
		"meminfo": {Text: "MemTotal:       2113478144 kB\nMemFree: 1 kB"}, "init": {Text: "systemd"}, "date": {Text: "1700000000"},
		"nproc": {Text: "224"}, "systemd": {Text: "systemd 255 (255.4-1ubuntu8)\n+PAM"},
		"ip":        {Text: `[{"ifname":"lo","link_type":"loopback","mtu":65536},{"ifname":"ens1","mtu":9000,"link_type":"ether","addr_info":[{"local":"198.51.100.11","prefixlen":24,"scope":"global"},{"local":"fe80::1","prefixlen":64,"scope":"link"},{"local":"2001:db8::1","prefixlen":64,"scope":"global"}]}]`},
		"net-speed": {Text: "ens1 400000\neno2 -1\n"}, "lspci": {Text: "0000:00:07.0 PCI bridge [0604]: Intel Corporation Device [8086:352a] (rev 04)\n"},
		"nvidia-smi": {Exit: 127}, "nvidia-smi-table": {Exit: 127}, "amd-smi-version": {Exit: 127}, "amd-smi-static": {Exit: 127},
	}
}

func with(over Raw) Raw {
	r := plain()
	for k, v := range over {
		r[k] = v
	}
	return r
}

func TestPlainHost(t *testing.T) {
	f := Parse(plain())
	if len(f.Findings) != 0 {
		t.Errorf("findings on a healthy host without accelerators: %+v", f.Findings)
	}
	if f.Vendor != VendorNone || f.CPUs != 224 || f.MemoryBytes != 2113478144<<10 || f.OS.VersionID != "24.04" || f.OS.PrettyName != "Ubuntu 24.04.1 LTS" ||
		f.Kernel != "6.8.0-49-generic" || f.Arch != "amd64" || f.Systemd != 255 || f.UnixTime != 1700000000 {
		t.Errorf("%+v", f)
	}
	if len(f.NICs) != 1 || f.NICs[0].MTU != 9000 || f.NICs[0].SpeedMbps != 400000 || strings.Join(f.NICs[0].Addresses, " ") != "198.51.100.11/24 2001:db8::1/64" {
		t.Errorf("%+v", f.NICs)
	}
}

func TestH100Host(t *testing.T) {
	f := Parse(with(Raw{"lspci": {Text: fixture(t, "h100x8-lspci.txt")}, "nvidia-smi": {Text: fixture(t, "h100x8-query.csv")}, "nvidia-smi-table": {Text: fixture(t, "h100x8-nvidia-smi.txt")}}))
	if f.Vendor != VendorNVIDIA || len(f.Accelerators) != 8 || f.DriverVersion != "550.90.07" || f.CUDAVersion != "12.4" || f.Models()["H100"] != 8 || len(f.Findings) != 0 {
		t.Fatalf("%+v", f)
	}
	if a := f.Accelerators[1]; a.Index != 1 || a.PCI != "0000:3b:00.0" || a.MemoryBytes != 81559<<20 || a.UUID != "GPU-ab207508-3edb-6be7-c491-c37c00b0841e" || a.Name != "NVIDIA H100 80GB HBM3" {
		t.Errorf("%+v", a)
	}
	if m := Check(f, Expect{Vendor: "nvidia", GPU: "H100", GPUCount: count(8)}); len(m) != 0 {
		t.Errorf("%v", m)
	}
}

func TestMI300XHost(t *testing.T) {
	lspci := fixture(t, "mi300x8-lspci.txt")
	two := Raw{"lspci": {Text: firstAccelerators(lspci, "1002:", 2)}, "amd-smi-static": {Text: fixture(t, "mi300x-2-static.json")}, "amd-smi-version": {Text: fixture(t, "mi300x-version.json")}}
	f := Parse(with(two))
	if f.Vendor != VendorAMD || f.Models()["MI300X"] != 2 || f.DriverVersion != "6.16.13" || f.ROCmVersion != "7.2.1" || len(f.Findings) != 0 {
		t.Fatalf("%+v", f)
	}
	if a := f.Accelerators[0]; a.PCI != "0000:1b:00.0" || a.MemoryBytes != 196592<<20 {
		t.Errorf("%+v", a)
	}
	// Before ROCm 7 the list stood bare.
	bare := strings.TrimSpace(two["amd-smi-static"].Text)
	_, bare, _ = strings.Cut(bare, "[")
	bare = "[" + strings.TrimSuffix(bare, "}")
	two["amd-smi-static"] = Section{Text: bare}
	if g := Parse(with(two)); g.Models()["MI300X"] != 2 || g.Accelerators[1].MemoryBytes != 196592<<20 {
		t.Errorf("%+v", g)
	}
	// Without the right to look: the model comes from PCI, and a finding says why the rest is missing.
	two["amd-smi-static"] = Section{Text: fixture(t, "mi300x-2-static-nonroot.txt")}
	g := Parse(with(two))
	if g.Models()["MI300X"] != 2 || g.Accelerators[0].MemoryBytes != 0 || !found(g, "amd-smi-static", "not allowed") || g.DriverVersion != "6.16.13" {
		t.Errorf("%+v", g)
	}
}

// firstAccelerators keeps n accelerators of a vendor in lspci's output.
func firstAccelerators(text, vendor string, n int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, "[1200]") && strings.Contains(line, vendor) {
			if n == 0 {
				continue
			}
			n--
		}
		b.WriteString(line)
	}
	return b.String()
}

func found(f Facts, subject, text string) bool {
	for _, x := range f.Findings {
		if x.Subject == subject && strings.Contains(x.Text, text) {
			return true
		}
	}
	return false
}

func count(n int) *int { return &n }

func TestH200Real(t *testing.T) {
	gpus, err := ParseNVIDIAQuery(fixture(t, "h200x2-query.csv"))
	if err != nil || len(gpus) != 2 || gpus[0].Model != "H200" || gpus[0].MemoryBytes != 143771<<20 || gpus[1].PCI != "0000:00:07.0" || gpus[0].MIG || gpus[0].Driver != "580.159.04" {
		t.Errorf("%+v %v", gpus, err)
	}
	if v := ParseCUDAVersion(fixture(t, "h200x2-nvidia-smi.txt")); v != "13.0" {
		t.Errorf("CUDA %q", v)
	}
}

// TestTroubles: what a broken host's tools say becomes findings, and the PCI bus still tells what is there.
func TestTroubles(t *testing.T) {
	lspci := Section{Text: fixture(t, "h100x8-lspci.txt")}
	query := fixture(t, "h100x8-query.csv")
	tests := []struct {
		name    string
		raw     Raw
		count   int
		subject string
		text    string
	}{
		{"no driver", Raw{"nvidia-smi": {Exit: 9, Text: "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"}}, 8, "nvidia-smi", "couldn't communicate"},
		{"hangs", Raw{"nvidia-smi": {Exit: 124}}, 8, "nvidia-smi", "in time"},
		{"not even killed", Raw{"nvidia-smi": {Exit: -1}}, 8, "nvidia-smi", "in time"},
		{"not installed", Raw{"nvidia-smi": {Exit: 127}}, 8, "nvidia-smi", "not installed"},
		{"lost one", Raw{"nvidia-smi": {Text: query[:strings.LastIndex(strings.TrimSpace(query), "\n")+1]}}, 7, "0000:db:00.0", "does not see it"},
		{"MIG", Raw{"nvidia-smi": {Text: strings.Replace(query, "9.0, Disabled", "9.0, Enabled", 1)}}, 8, "0000:19:00.0", "MIG"},
		{"new form", Raw{"nvidia-smi": {Text: "something else\n"}}, 8, "nvidia-smi", "header"},
		{"not a number", Raw{"nvidia-smi": {Text: strings.Replace(query, "81559 MiB", "lots", 1)}}, 8, "nvidia-smi", "memory.total"},
		{"no systemd", Raw{"nvidia-smi": {Text: query}, "init": {Text: "runit"}}, 8, "systemd", "runit"},
		{"no machine-id", Raw{"nvidia-smi": {Text: query}, "machine-id": {Text: "uninitialized"}}, 8, "machine-id", "uninitialized"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.raw["lspci"] = lspci
			f := Parse(with(tt.raw))
			if f.Vendor != VendorNVIDIA || len(f.Accelerators) != tt.count || f.Accelerators[0].Model != "H100" || !found(f, tt.subject, tt.text) {
				t.Errorf("%d accelerators, findings %+v", len(f.Accelerators), f.Findings)
			}
		})
	}
	if f := Parse(Raw{}); f.Vendor != VendorNone || !found(f, "uname", "not reached") {
		t.Errorf("%+v", f)
	}
	// Without lspci and sysfs the tool's word counts.
	if f := Parse(with(Raw{"lspci": {Exit: 1}, "nvidia-smi": {Text: query}})); f.Models()["H100"] != 8 {
		t.Errorf("%+v", f)
	}
}

func TestModels(t *testing.T) {
	for name, want := range map[string]string{
		"NVIDIA H100 80GB HBM3": "H100", "NVIDIA H200": "H200", "NVIDIA A100-SXM4-80GB": "A100", "AMD Instinct MI300X": "MI300X", "AMD Instinct MI300X OAM": "MI300X",
		"GH100[H100 SXM5 80GB]": "H100", "NVIDIA L40S": "L40S", "NVIDIA GH200 480GB": "GH200", "Tesla T4": "T4", "NVIDIA A10G": "A10G", "AMD Instinct MI250X / MI250": "MI250X", "NVIDIA B200": "B200", "Device": "",
	} {
		if got := NormalModel(name); got != want {
			t.Errorf("NormalModel(%q) = %q, want %q", name, got, want)
		}
	}
	if got := ModelOf("1002", "74a1", "Device"); got != "MI300X" {
		t.Errorf("by PCI device: %q", got)
	}
}

func TestCheck(t *testing.T) {
	h100 := Facts{Vendor: VendorNVIDIA, Accelerators: []Accelerator{{Model: "H100"}, {Model: "H100"}}}
	mixed := Facts{Vendor: VendorNVIDIA, Accelerators: []Accelerator{{Model: "H100"}, {Model: "A100"}}}
	none := Facts{Vendor: VendorNone, Findings: []Finding{{Subject: "lspci", Text: "is not installed"}}}
	tests := []struct {
		name string
		f    Facts
		e    Expect
		want string // attributes
	}{
		{"nothing expected", none, Expect{}, ""},
		{"all met", h100, Expect{"nvidia", "h100", count(2)}, ""},
		{"long name", h100, Expect{GPU: "NVIDIA H100 80GB HBM3"}, ""},
		{"vendor", h100, Expect{Vendor: "amd"}, "vendor"},
		{"model", h100, Expect{GPU: "H200"}, "gpu"},
		{"count", h100, Expect{GPUCount: count(8)}, "gpu_count"},
		{"none expected", h100, Expect{Vendor: "none", GPUCount: count(0)}, "vendor gpu_count"},
		{"two models", mixed, Expect{GPU: "H100"}, "gpu"},
		{"no accelerator", none, Expect{"amd", "MI300X", count(8)}, "vendor gpu gpu_count"},
		{"none, as expected", none, Expect{Vendor: "none", GPUCount: count(0)}, ""},
	}
	for _, tt := range tests {
		var got []string
		for _, m := range Check(tt.f, tt.e) {
			got = append(got, m.Attribute)
			if m.Fix == "" || m.Want == "" || m.Got == "" || !strings.Contains(m.String(), m.Want) {
				t.Errorf("%s: %+v", tt.name, m)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, want %s", tt.name, got, tt.want)
		}
	}
	if m := Check(none, Expect{GPU: "H100"}); !strings.Contains(m[0].Fix, "lspci is not installed") {
		t.Errorf("the finding is not in the fix: %+v", m)
	}
}

func TestSections(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z-]{1,6}`), 0, 5, rapid.ID).Draw(t, "names")
		want := Raw{}
		var out strings.Builder
		for _, n := range names {
			s := Section{Text: rapid.String().Draw(t, "text"), Exit: rapid.IntRange(0, 255).Draw(t, "exit")}
			if strings.Contains(s.Text, "@@") {
				s.Text = ""
			}
			want[n] = s
			out.WriteString("\n@@N begin " + n + "\n" + s.Text + "\n@@N end " + n + " " + itoa(s.Exit) + "\n")
		}
		got := Sections("N", out.String())
		if len(got) != len(want) {
			t.Fatalf("%+v, want %+v", got, want)
		}
		for n, s := range want {
			if got[n] != s {
				t.Fatalf("%s: %+v, want %+v", n, got[n], s)
			}
		}
		if len(names) > 0 {
			cut := Sections("N", strings.TrimSuffix(out.String(), "@@N end "+names[len(names)-1]+" "+itoa(want[names[len(names)-1]].Exit)+"\n"))
			if last := cut[names[len(names)-1]]; last.Exit != -1 || cut.Has(names[len(names)-1]) {
				t.Fatalf("an unfinished section: %+v", last)
			}
		}
	})
}
