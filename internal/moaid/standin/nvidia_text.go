package standin

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// nvidiaLegend explains nvidiaTopology's words, in the tool's own.
const nvidiaLegend = `
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

`

// nvidiaTopology is the output of `nvidia-smi topo -m`: columns apart by tabs, empty affinity columns on NIC rows.
func nvidiaTopology(p profile) string {
	gpuCount := len(p.buses)
	far := func(a, b int) bool { return (a < 0x80) != (b < 0x80) } // on different NUMA nodes
	gpuNIC := func(g int, n nic) string {
		switch {
		case far(p.buses[g], n.bus):
			return "SYS"
		case n.near == g:
			return "PXB"
		}
		return "NODE"
	}
	nicNIC := func(a, b int) string {
		x, y := p.nics[a], p.nics[b]
		switch {
		case a == b:
			return " X "
		case far(x.bus, y.bus):
			return "SYS"
		case x.bus == y.bus:
			return "PIX"
		}
		return "NODE"
	}
	header := []string{""}
	for g := range gpuCount {
		header = append(header, fmt.Sprintf("GPU%d", g))
	}
	for n := range p.nics {
		header = append(header, fmt.Sprintf("NIC%d", n))
	}
	rows := [][]string{append(header, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID")}
	for g := range gpuCount {
		row := []string{fmt.Sprintf("GPU%d", g)}
		for other := range gpuCount {
			if other == g {
				row = append(row, " X ")
			} else {
				row = append(row, "NV18")
			}
		}
		for _, n := range p.nics {
			row = append(row, gpuNIC(g, n))
		}
		rows = append(rows, append(row, p.cpus[p.node(g)], fmt.Sprint(p.node(g)), "", "N/A"))
	}
	for a, n := range p.nics {
		row := []string{fmt.Sprintf("NIC%d", a)}
		for g := range gpuCount {
			row = append(row, gpuNIC(g, n))
		}
		for b := range p.nics {
			row = append(row, nicNIC(a, b))
		}
		rows = append(rows, append(row, "", "", "", ""))
	}
	var b strings.Builder
	for _, row := range rows {
		b.WriteString(strings.Join(row, "\t") + "\n")
	}
	b.WriteString(nvidiaLegend)
	for i, n := range p.nics {
		fmt.Fprintf(&b, "  NIC%d: %s\n", i, n.name)
	}
	b.WriteString("\n")
	return b.String()
}

// nvidiaTable is what nvidia-smi prints without arguments.
func nvidiaTable(p profile, gpus []nvidiaGPU, now time.Time) string {
	const (
		a = 41 // widths of the three columns
		m = 24
		z = 22
	)
	line := func(left, fill, right string) string {
		return left + strings.Repeat(fill, a) + "+" + strings.Repeat(fill, m) + "+" + strings.Repeat(fill, z) + right + "\n"
	}
	wide := "+" + strings.Repeat("-", a+m+z+2) + "+\n"
	var b strings.Builder
	b.WriteString(now.Format("Mon Jan _2 15:04:05 2006") + "       \n" + wide)
	fmt.Fprintf(&b, "| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-8s |\n", p.driver, p.driver, p.platform)
	b.WriteString(line("|", "-", "|") +
		"| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n" +
		"| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n" +
		"|                                         |                        |               MIG M. |\n" +
		line("|", "=", "|"))
	for _, g := range gpus {
		persistence := "Off"
		if g.get("persistence_mode") == "Enabled" {
			persistence = "On"
		}
		draw, limit := watts(g.get("power.draw")), watts(g.get("power.limit"))
		fmt.Fprintf(&b, "|%4d  %-27s    %-3s |%19s Off |%21s |\n", g.index, g.get("name"), persistence, g.get("pci.bus_id"),
			g.get("ecc.errors.uncorrected.volatile.total"))
		fmt.Fprintf(&b, "| N/A%5sC    P0%15sW / %4sW |%8sMiB / %6sMiB |%7s%%      Default |\n", g.get("temperature.gpu"), draw, limit,
			g.get("memory.used"), g.get("memory.total"), g.get("utilization.gpu"))
		fmt.Fprintf(&b, "|%*s|%*s|%*s |\n", a, "", m, "", z-1, g.get("mig.mode.current"))
		b.WriteString(line("+", "-", "+"))
	}
	b.WriteString("\n" + wide +
		"| Processes:                                                                              |\n" +
		"|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |\n" +
		"|        ID   ID                                                               Usage      |\n" +
		"|" + strings.Repeat("=", a+m+z+2) + "|\n" +
		"|  No running processes found                                                             |\n" + wide)
	return b.String()
}

// watts is a power as the table prints it, without decimals.
func watts(value string) string {
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return "N/A"
	}
	return fmt.Sprintf("%.0f", v)
}
