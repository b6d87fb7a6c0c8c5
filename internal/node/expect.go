package node

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/facts"
)

// describe names accelerators for people: "8 × MI300X (amd)".
func describe(f facts.Facts) string {
	if len(f.Accelerators) == 0 {
		return "no accelerator"
	}
	models := f.Models()
	var parts []string
	for _, m := range slices.Sorted(maps.Keys(models)) {
		name := m
		if name == "" {
			name = "unknown model"
		}
		parts = append(parts, fmt.Sprintf("%d × %s", models[m], name))
	}
	return strings.Join(parts, ", ") + " (" + f.Vendor + ")"
}

// suggestion is the expect block that states what a machine is, to be pasted into the configuration.
func suggestion(f facts.Facts) string {
	fields := []string{"vendor = " + strconv.Quote(f.Vendor)}
	models := f.Models()
	if len(models) == 1 {
		for m := range models {
			if m != "" {
				fields = append(fields, "gpu = "+strconv.Quote(m))
			}
		}
	}
	return "expect = { " + strings.Join(append(fields, "gpu_count = "+strconv.Itoa(len(f.Accelerators))), ", ") + " }"
}

// unsupported says why moaid cannot be installed on a machine; empty means that it can.
func unsupported(f facts.Facts) string {
	switch {
	case f.Systemd == 0:
		return "systemd does not run this machine; moaid is installed as a systemd unit"
	case f.Arch != "amd64" && f.Arch != "arm64":
		return fmt.Sprintf("its architecture is %s; moaid runs on amd64 and arm64", f.Arch)
	case f.MachineID == "":
		return "it has no machine-id, by which it could be recognised; run systemd-machine-id-setup on it"
	}
	return ""
}

// findings lists what a person should know about a machine, a line each.
func findings(f facts.Facts) string {
	var b strings.Builder
	for _, x := range f.Findings {
		b.WriteString("- " + x.Subject + " " + x.Text)
		if x.Fix != "" {
			b.WriteString(". " + strings.TrimSuffix(x.Fix, ".") + ".")
		}
		b.WriteByte('\n')
	}
	return strings.TrimSpace(b.String())
}
