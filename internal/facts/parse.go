package facts

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Parse reads a probe's answers. It never fails: what is missing or cannot be read is a finding.
func Parse(raw Raw) Facts {
	p := &parser{raw: raw}
	p.system()
	p.network()
	p.accelerators()
	return p.f
}

type parser struct {
	raw Raw
	f   Facts
}

func (p *parser) find(subject, fix, format string, a ...any) {
	p.f.Findings = append(p.f.Findings, Finding{Subject: subject, Text: fmt.Sprintf(format, a...), Fix: fix})
}

// use gives a section's text to read, and notes why there is none.
func (p *parser) use(name string, read func(text string) error) {
	s, ok := p.raw[name]
	switch {
	case !ok:
		p.find(name, "An earlier tool used up the time: look at its finding", "was not reached")
	case s.Exit == 127:
		p.find(name, "Install it", "is not installed")
	case s.Exit == -1 || s.Exit == 124 || s.Exit == 137:
		p.find(name, "Run it by hand on the host: a driver or a device hangs", "did not answer in time")
	case s.Exit != 0:
		p.find(name, "Run it by hand on the host", "failed with exit status %d: %s", s.Exit, firstLine(s.Text))
	default:
		if err := read(s.Text); err != nil {
			p.find(name, "Report this output, its form is not known", "%s", err)
		}
	}
}

func firstLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			return fmt.Sprintf("%.300s", line)
		}
	}
	return "no output"
}

func (p *parser) system() {
	f := &p.f
	p.use("os-release", func(t string) error { f.OS = ParseOSRelease(t); return nil })
	p.use("uname", func(t string) (err error) { f.Kernel, f.Arch, err = ParseUname(t); return err })
	p.use("machine-id", func(t string) error {
		f.MachineID = strings.TrimSpace(t)
		if len(f.MachineID) != 32 {
			return fmt.Errorf("/etc/machine-id holds %.60q, not 32 hex digits", f.MachineID)
		}
		return nil
	})
	p.use("boot-id", func(t string) error { f.BootID = strings.TrimSpace(t); return nil })
	p.use("hostname", func(t string) error { f.Hostname = strings.TrimSpace(t); return nil })
	p.use("meminfo", func(t string) (err error) { f.MemoryBytes, err = ParseMeminfo(t); return err })
	p.use("nproc", func(t string) (err error) { f.CPUs, err = ParseNproc(t); return err })
	p.use("date", func(t string) (err error) {
		f.UnixTime, err = strconv.ParseInt(strings.TrimSpace(t), 10, 64)
		return err
	})
	if init, ok := p.raw.text("init"); ok && strings.TrimSpace(init) != "systemd" {
		p.find("systemd", "Use a host that systemd runs", "does not run this host: its first process is %s", strings.TrimSpace(init))
		return
	}
	p.use("systemd", func(t string) (err error) { f.Systemd, err = ParseSystemdVersion(t); return err })
}

func (p *parser) network() {
	p.use("ip", func(t string) (err error) { p.f.NICs, err = ParseIPAddr(t); return err })
	t, _ := p.raw.text("net-speed")
	speeds := ParseSpeeds(t)
	for i := range p.f.NICs {
		p.f.NICs[i].SpeedMbps = speeds[p.f.NICs[i].Name]
	}
}

// accelerators takes the count and the vendor from PCI and the rest from the vendor's tool.
func (p *parser) accelerators() {
	byVendor := map[string][]Accelerator{}
	p.use("lspci", func(t string) error {
		for _, d := range ParseLspci(t) {
			if v := d.accelerator(); v != "" {
				byVendor[v] = append(byVendor[v], Accelerator{
					Index: len(byVendor[v]), Vendor: v, Model: ModelOf(d.Vendor, d.Device, d.Name), Name: d.Name, PCI: d.Address,
				})
			}
		}
		return nil
	})
	_, onPCI := p.raw.text("lspci")
	nvidia := p.merge(byVendor[VendorNVIDIA], onPCI, p.nvidia, "nvidia-smi")
	amd := p.merge(byVendor[VendorAMD], onPCI, p.amd, "amd-smi-static")
	p.f.Accelerators = slices.Concat(nvidia, amd)
	switch {
	case len(nvidia) > 0 && len(amd) > 0:
		p.f.Vendor = VendorMixed
		p.find("accelerators", "", "host has accelerators of both vendors")
	case len(nvidia) > 0:
		p.f.Vendor = VendorNVIDIA
	case len(amd) > 0:
		p.f.Vendor = VendorAMD
	default:
		p.f.Vendor = VendorNone
	}
}

// merge asks the tool only where PCI shows a device, or where PCI could not be asked and the tool answered: a host
// without accelerators owes nobody an nvidia-smi.
func (p *parser) merge(pci []Accelerator, onPCI bool, tool func() []Accelerator, section string) []Accelerator {
	if _, answered := p.raw.text(section); len(pci) == 0 && (onPCI || !answered) {
		return nil
	}
	said := tool()
	if len(pci) == 0 || len(said) == 0 {
		return append(pci, said...)
	}
	model := map[string]string{}
	for _, a := range pci {
		model[a.PCI] = a.Model
		if !slices.ContainsFunc(said, func(s Accelerator) bool { return s.PCI == a.PCI }) {
			p.find(a.PCI, "Look into the kernel log for Xid or amdgpu messages; the device may need a reset or a reboot",
				"%s is on the PCI bus, but %s does not see it", a.Name, section)
		}
	}
	for i := range said {
		if m := model[said[i].PCI]; m != "" {
			said[i].Model = m
		}
	}
	slices.SortFunc(said, func(a, b Accelerator) int { return a.Index - b.Index })
	return said
}

func (p *parser) nvidia() []Accelerator {
	var out []Accelerator
	p.use("nvidia-smi", func(t string) error {
		gpus, err := ParseNVIDIAQuery(t)
		for _, g := range gpus {
			out = append(out, g.Accelerator)
			p.f.DriverVersion = g.Driver
			if g.MIG {
				p.find(g.PCI, "Disable MIG: nvidia-smi -mig 0", "GPU %d is divided by MIG", g.Index)
			}
		}
		return err
	})
	if t, ok := p.raw.text("nvidia-smi-table"); ok {
		p.f.CUDAVersion = ParseCUDAVersion(t)
	}
	return out
}

func (p *parser) amd() []Accelerator {
	var out []Accelerator
	p.use("amd-smi-static", func(t string) error {
		gpus, err := ParseAMDStatic(t)
		closed := 0
		for _, g := range gpus {
			out = append(out, g.Accelerator)
			if p.f.DriverVersion == "" {
				p.f.DriverVersion = g.Driver
			}
			if !g.Readable {
				closed++
			}
		}
		if closed > 0 {
			p.find("amd-smi-static", "Let the SSH user become root, or add it to the groups render and video", "was not allowed to look into %d of %d devices", closed, len(gpus))
		}
		return err
	})
	p.use("amd-smi-version", func(t string) error {
		rocm, driver, err := ParseAMDVersion(t)
		p.f.ROCmVersion = rocm
		if p.f.DriverVersion == "" {
			p.f.DriverVersion = driver
		}
		return err
	})
	return out
}
