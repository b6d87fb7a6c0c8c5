package facts

import (
	"fmt"
	"regexp"
	"strings"
)

// PCIDevice is one line of "lspci -Dnn".
type PCIDevice struct {
	Address string // 0000:19:00.0
	Class   string // four hex digits: 0302
	Vendor  string // four hex digits: 10de
	Device  string // four hex digits: 2330
	Name    string // as the PCI database of the host says
}

var lspciLine = regexp.MustCompile(`^([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]) (.*?)\[([0-9a-fA-F]{4})\]: (.*)\[([0-9a-fA-F]{4}):([0-9a-fA-F]{4})\]`)

// ParseLspci reads "lspci -Dnn". Lines of another form are skipped.
func ParseLspci(text string) []PCIDevice {
	var out []PCIDevice
	for line := range strings.Lines(text) {
		m := lspciLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		addr, err := NormalPCI(m[1])
		if err != nil {
			continue
		}
		out = append(out, PCIDevice{
			Address: addr, Class: strings.ToLower(m[3]), Vendor: strings.ToLower(m[5]), Device: strings.ToLower(m[6]),
			Name: strings.TrimSpace(m[4]),
		})
	}
	return out
}

var pciAddress = regexp.MustCompile(`^([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$`)

// NormalPCI brings a PCI address to the form 0000:19:00.0, whatever the case and the width of its domain.
func NormalPCI(s string) (string, error) {
	m := pciAddress.FindStringSubmatch(strings.ToLower(strings.TrimSpace(s)))
	if m == nil {
		return "", fmt.Errorf("PCI address %.40q is not domain:bus:device.function", s)
	}
	domain := strings.TrimLeft(m[1], "0")
	for len(domain) < 4 {
		domain = "0" + domain
	}
	return domain + ":" + m[2] + ":" + m[3] + "." + m[4], nil
}

// accelerator reports the vendor of a compute GPU, or "". Desktop and management graphics are none: NVIDIA's are told
// apart by nothing here (the driver serves them all), AMD's by class: processing accelerator or display controller.
func (d PCIDevice) accelerator() string {
	switch {
	case d.Vendor == "10de" && (d.Class == "0300" || d.Class == "0302"):
		return VendorNVIDIA
	case d.Vendor == "1002" && (d.Class == "1200" || d.Class == "0380"):
		return VendorAMD
	}
	return ""
}

// models are the accelerators known by PCI device. Names in PCI databases differ between distributions.
var models = map[string]string{
	"10de:1db1": "V100", "10de:1db4": "V100", "10de:1db5": "V100", "10de:1db6": "V100", "10de:1eb8": "T4",
	"10de:20b0": "A100", "10de:20b1": "A100", "10de:20b2": "A100", "10de:20b3": "A100", "10de:20b5": "A100", "10de:20f1": "A100", "10de:20f3": "A800",
	"10de:20b7": "A30", "10de:2235": "A40", "10de:2236": "A10", "10de:2237": "A10G",
	"10de:2330": "H100", "10de:2331": "H100", "10de:2339": "H100", "10de:2321": "H100", "10de:2324": "H800", "10de:2329": "H20",
	"10de:2335": "H200", "10de:233b": "H200", "10de:2342": "GH200", "10de:26b5": "L40", "10de:26b9": "L40S", "10de:27b8": "L4",
	"10de:2901": "B200", "10de:2941": "GB200",
	"1002:738c": "MI100", "1002:7408": "MI250X", "1002:740c": "MI250", "1002:740f": "MI210",
	"1002:74a0": "MI300A", "1002:74a1": "MI300X", "1002:74b5": "MI300X", "1002:74a9": "MI300X", "1002:74a2": "MI308X",
	"1002:74a5": "MI325X", "1002:74b9": "MI325X", "1002:75a0": "MI350X", "1002:75a3": "MI355X",
}

var modelWord = regexp.MustCompile(`(?i)\b(GH200|GB[23]00|B[123]00|H[12]00|H20|H800|A[18]00|A[34]0|A10G?|L40S?|L4|V100|T4|MI\d{3}[AX]?)\b`)

// ModelOf is an accelerator's short model name, by PCI device if that is known, else by the name that a tool gives, else "".
func ModelOf(vendor, device, name string) string {
	if m, ok := models[vendor+":"+device]; ok {
		return m
	}
	return NormalModel(name)
}

// NormalModel takes the model out of a name such as "NVIDIA H100 80GB HBM3" or "AMD Instinct MI300X", or returns "".
func NormalModel(name string) string {
	return strings.ToUpper(modelWord.FindString(name))
}
