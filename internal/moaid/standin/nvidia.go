package standin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Exit codes of nvidia-smi.
const (
	nvidiaBadArgument = 2
	nvidiaNotFound    = 6
	nvidiaNoDriver    = 9
	nvidiaLost        = 15
)

// nvidiaGPU is one GPU: its values by the names that --query-gpu takes.
type nvidiaGPU struct {
	index  int
	values map[string]string
}

func (g nvidiaGPU) get(field string) string { return g.values[field] }

// nvidiaGPUs lists the host's GPUs, lost ones too.
func nvidiaGPUs(h Hardware, now time.Time) []nvidiaGPU {
	p := profiles[h.Profile]
	var all []nvidiaGPU
	for i, bus := range p.buses {
		id := digest(32, h.Host, gpuThing(i))
		all = append(all, nvidiaGPU{i, map[string]string{
			"index": strconv.Itoa(i), "count": strconv.Itoa(len(p.buses)), "name": p.name,
			"timestamp":      now.Format("2006/01/02 15:04:05.000"),
			"uuid":           fmt.Sprintf("GPU-%s-%s-%s-%s-%s", id[:8], id[8:12], id[12:16], id[16:20], id[20:]),
			"serial":         fmt.Sprintf("16502230%05d", decimal(99999, h.Host, gpuThing(i)+"/serial")),
			"pci.bus_id":     fmt.Sprintf("00000000:%02X:00.0", bus),
			"pci.domain":     "0x0000",
			"pci.bus":        fmt.Sprintf("0x%02X", bus),
			"pci.device":     "0x00",
			"pci.device_id":  "0x" + p.chip.device + strings.ToUpper(p.chip.vendor),
			"driver_version": p.driver, "vbios_version": "96.00.74.00.01", "compute_cap": "9.0",
			"memory.total": "81559", "memory.used": "1", "memory.free": "81004", "memory.reserved": "554",
			"power.draw": fmt.Sprintf("%d.%02d", 70+i, 11*i), "power.limit": "700.00", "power.max_limit": "700.00",
			"power.default_limit": "700.00", "power.min_limit": "200.00", "enforced.power.limit": "700.00",
			"temperature.gpu": strconv.Itoa(28 + i), "fan.speed": "[N/A]", "pstate": "P0",
			"utilization.gpu": "0", "utilization.memory": "0",
			"clocks.sm": "345", "clocks.mem": "2619", "clocks.max.sm": "1980", "clocks.max.mem": "2619",
			"persistence_mode": "Enabled", "compute_mode": "Default", "display_active": "Disabled",
			"mig.mode.current": "Disabled", "mig.mode.pending": "Disabled",
			"ecc.mode.current": "Enabled", "ecc.mode.pending": "Enabled",
			"ecc.errors.uncorrected.volatile.total": "0", "ecc.errors.uncorrected.aggregate.total": "0",
			"ecc.errors.corrected.volatile.total": "0", "ecc.errors.corrected.aggregate.total": "0",
			"retired_pages.pending":       "[N/A]",
			"pcie.link.gen.current":       "5",
			"pcie.link.gen.max":           "5",
			"pcie.link.width.current":     "16",
			"pcie.link.width.max":         "16",
			"addressing_mode":             "None",
			"reset_status.reset_required": "No",
		}})
	}
	return all
}

// nvidiaAlias are second names of fields.
var nvidiaAlias = map[string]string{
	"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id", "gpu_serial": "serial",
}

// nvidiaUnits are the units of fields, by the start of their names.
var nvidiaUnits = []struct{ prefix, unit string }{
	{"memory.", "MiB"}, {"power.", "W"}, {"enforced.power.", "W"}, {"utilization.", "%"}, {"clocks.", "MHz"},
	{"fan.speed", "%"}, {"used_memory", "MiB"}, {"used_gpu_memory", "MiB"},
}

func nvidiaUnit(field string) string {
	for _, u := range nvidiaUnits {
		if strings.HasPrefix(field, u.prefix) {
			return u.unit
		}
	}
	return ""
}

// nvidiaOptions are the arguments of nvidia-smi, as far as they are known here.
type nvidiaOptions struct {
	list, topo      bool
	id              string
	fields, apps    []string
	format          []string
	query, queryApp bool
}

func parseNvidia(args []string) (nvidiaOptions, bool) {
	var o nvidiaOptions
	if slices.Equal(args, []string{"topo", "-m"}) || slices.Equal(args, []string{"topo", "--matrix"}) {
		o.topo = true
		return o, true
	}
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		take := func() bool { // the option's value: after "=", or the next word
			if !joined {
				if i++; i == len(args) {
					return false
				}
				value = args[i]
			}
			return true
		}
		ok := true
		switch name {
		case "-L", "--list-gpus":
			o.list = true
		case "-i", "--id":
			ok = take()
			o.id = value
		case "--query-gpu":
			ok = take()
			o.query, o.fields = true, fieldList(value)
		case "--query-compute-apps":
			ok = take()
			o.queryApp, o.apps = true, fieldList(value)
		case "--format":
			ok = take()
			o.format = fieldList(value)
		default:
			ok = false
		}
		if !ok {
			return o, false
		}
	}
	return o, true
}

func fieldList(value string) []string {
	fields := strings.Split(value, ",")
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	return fields
}

func nvidiaSMI(h Hardware, c Call) Answer {
	if !h.DriverLoaded {
		return nvidiaFails(nvidiaNoDriver, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "+
			"Make sure that the latest NVIDIA driver is installed and running.\n")
	}
	o, ok := parseNvidia(c.Args)
	if !ok {
		return nvidiaFails(nvidiaBadArgument, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
	}
	if o.topo {
		return Answer{Out: nvidiaTopology(profiles[h.Profile])}
	}
	all := nvidiaGPUs(h, c.Now)
	gpus := slices.DeleteFunc(slices.Clone(all), func(g nvidiaGPU) bool { return h.lost(g.index) })
	if o.id != "" {
		gpus = slices.DeleteFunc(slices.Clone(all), func(g nvidiaGPU) bool { return !g.is(o.id) })
		if len(gpus) == 0 {
			return nvidiaFails(nvidiaNotFound, "No devices were found")
		}
	}
	for _, g := range all {
		asked := o.id == "" && !o.list || o.id != "" && g.is(o.id)
		if asked && h.lost(g.index) {
			return nvidiaFails(nvidiaLost, "Unable to determine the device handle for GPU%d: %s: Unknown Error",
				g.index, strings.TrimPrefix(g.get("pci.bus_id"), "0000"))
		}
	}
	switch {
	case o.query:
		return nvidiaQuery(o.fields, o.format, gpus)
	case o.queryApp: // nothing runs: the header, at most
		return nvidiaQuery(o.apps, o.format, nil)
	case o.list:
		var out strings.Builder
		for _, g := range gpus {
			fmt.Fprintf(&out, "GPU %d: %s (UUID: %s)\n", g.index, g.get("name"), g.get("uuid"))
		}
		return Answer{Out: out.String()}
	}
	return Answer{Out: nvidiaTable(profiles[h.Profile], gpus, c.Now)}
}

// nvidiaFails is a failure as nvidia-smi reports it: on standard output.
func nvidiaFails(code int, format string, args ...any) Answer {
	return Answer{Out: fmt.Sprintf(format, args...) + "\n", Code: code}
}

// is reports whether an -i argument means this GPU: index, UUID, serial number or PCI address, short or long.
func (g nvidiaGPU) is(id string) bool {
	bus := g.get("pci.bus_id")
	return slices.Contains([]string{g.get("index"), g.get("uuid"), g.get("serial")}, id) ||
		strings.EqualFold(id, bus) || strings.EqualFold(id, strings.TrimPrefix(bus, "0000"))
}

// nvidiaAppFields are the fields of --query-compute-apps.
var nvidiaAppFields = []string{
	"timestamp", "gpu_name", "gpu_bus_id", "gpu_serial", "gpu_uuid", "pid", "process_name", "name", "used_gpu_memory", "used_memory",
}

func nvidiaQuery(fields, format []string, gpus []nvidiaGPU) Answer {
	if !slices.Contains(format, "csv") {
		return nvidiaFails(nvidiaBadArgument, `Option "--format=csv" is missing, it must be specified with "--query-*" switch.`)
	}
	var header []string
	known := nvidiaGPUs(New("h100x8", ""), time.Time{})[0].values
	for _, f := range fields {
		_, isField := known[f]
		if !isField && nvidiaAlias[f] == "" && !slices.Contains(nvidiaAppFields, f) {
			return nvidiaFails(nvidiaBadArgument, "Field \"%s\" is not a valid field to query.\n", f)
		}
		if u := nvidiaUnit(f); u != "" {
			f += " [" + u + "]"
		}
		header = append(header, f)
	}
	var out strings.Builder
	if !slices.Contains(format, "noheader") {
		out.WriteString(strings.Join(header, ", ") + "\n")
	}
	for _, g := range gpus {
		var row []string
		for _, f := range fields {
			v := g.get(f)
			if v == "" {
				v = g.get(nvidiaAlias[f])
			}
			if u := nvidiaUnit(f); u != "" && v != "[N/A]" && !slices.Contains(format, "nounits") {
				v += " " + u
			}
			row = append(row, v)
		}
		out.WriteString(strings.Join(row, ", ") + "\n")
	}
	return Answer{Out: out.String()}
}
