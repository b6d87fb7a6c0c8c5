package standin

import (
	"fmt"
	"slices"
	"strings"
)

// pciDevice is one function on the PCI bus.
type pciDevice struct {
	bus, device, function int
	chip                  chip
	dead                  bool // answers all ones, as a device that has fallen off the bus does
}

// pciDevices lists the host's PCI devices in the order of their addresses.
func pciDevices(h Hardware) []pciDevice {
	p := profiles[h.Profile]
	var all []pciDevice
	for i, bus := range p.buses { // a root port, a switch (upstream, two downstream), the accelerator
		all = append(all,
			pciDevice{bus - 4, 1, 0, rootPort, false},
			pciDevice{bus - 3, 0, 0, pciSwitch, false},
			pciDevice{bus - 2, 0, 0, pciSwitch, false},
			pciDevice{bus - 2, 1, 0, pciSwitch, false},
			pciDevice{bus, 0, 0, p.chip, h.lost(i)})
	}
	for _, n := range p.nics {
		if n.near < 0 && n.function == 0 {
			all = append(all, pciDevice{n.bus - 1, 5, 0, rootPort, false})
		}
		all = append(all, pciDevice{n.bus, 0, n.function, n.chip, false})
	}
	for _, bus := range p.switches {
		all = append(all, pciDevice{0, bus, 0, rootPort, false}, pciDevice{bus, 0, 0, nvSwitch, false})
	}
	key := func(d pciDevice) int { return d.bus<<8 | d.device<<3 | d.function }
	slices.SortFunc(all, func(a, b pciDevice) int { return key(a) - key(b) })
	return all
}

// lspciMode is what lspci was asked to print.
type lspciMode struct {
	domain  bool
	numbers int    // -n given once or twice
	filter  string // vendor:device, either may be empty
}

func (d pciDevice) line(m lspciMode) string {
	var b strings.Builder
	if m.domain {
		b.WriteString("0000:")
	}
	c := d.chip
	fmt.Fprintf(&b, "%02x:%02x.%x ", d.bus, d.device, d.function)
	switch m.numbers {
	case 0:
		name := c.name
		if name == "" {
			name = "Device " + c.device
		}
		fmt.Fprintf(&b, "%s: %s %s", c.className, c.vendorName, name)
	case 1:
		fmt.Fprintf(&b, "%s: %s:%s", c.class, c.vendor, c.device)
	default:
		name := c.name
		if name == "" {
			name = "Device"
		}
		fmt.Fprintf(&b, "%s [%s]: %s %s [%s:%s]", c.className, c.class, c.vendorName, name, c.vendor, c.device)
	}
	switch {
	case d.dead:
		b.WriteString(" (rev ff)")
	case c.rev != 0:
		fmt.Fprintf(&b, " (rev %02x)", c.rev)
	}
	return b.String()
}

func (d pciDevice) matches(filter string) bool {
	vendor, device, _ := strings.Cut(filter, ":")
	device, _, _ = strings.Cut(device, ":")
	return (vendor == "" || vendor == d.chip.vendor) && (device == "" || device == d.chip.device)
}

func lspci(h Hardware, args []string) Answer {
	var m lspciMode
	for i := 0; i < len(args); i++ {
		flags, ok := strings.CutPrefix(args[i], "-")
		if !ok || flags == "" {
			return lspciUsage
		}
		for j := 0; j < len(flags); j++ {
			switch flags[j] {
			case 'D':
				m.domain = true
			case 'n':
				m.numbers++
			case 'd': // its value is the rest of the word, or the next word
				m.filter = flags[j+1:]
				if m.filter == "" {
					if i++; i == len(args) {
						return lspciUsage
					}
					m.filter = args[i]
				}
				m.filter = strings.ToLower(m.filter)
				j = len(flags)
			default:
				return lspciUsage
			}
		}
	}
	var out strings.Builder
	for _, d := range pciDevices(h) {
		if d.matches(m.filter) {
			out.WriteString(d.line(m) + "\n")
		}
	}
	return Answer{Out: out.String()}
}

// lspciUsage answers arguments that are not known here.
var lspciUsage = Answer{Err: "Usage: lspci [<switches>]\n\nThis one knows -D, -n, -nn and -d [<vendor>]:[<device>].\n", Code: 1}
