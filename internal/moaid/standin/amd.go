package standin

import (
	"fmt"
	"slices"
	"strings"
)

// Exit codes of amd-smi.
const (
	amdBadArgument = 2
	amdNoDriver    = 255
)

const (
	amdToolVersion    = "26.2.2+e1a6bc5663"
	amdLibraryVersion = "26.2.2"
)

// amdNotice is what amd-smi prints before its answer to those who may not open the device nodes.
const amdNotice = "Permission needed to access required GPU device node(s):\n" +
	"  • /dev/kfd: Permission denied\n" +
	"    - Required group:\n" +
	"      - User: root (UID=0) | Group: render (GID=%[1]s)\n" +
	"  • /dev/dri/renderD*: 64 device(s) denied\n" +
	"    - Required group:\n" +
	"      - User: root (UID=0) | Group: render (GID=%[1]s)\n\n" +
	"To resolve this issue, try the following:\n" +
	"  • Add your user to the required group(s):\n" +
	"      sudo usermod -aG render \"$USER\"\n" +
	"  • Log out and log back in for the group changes to take effect\n" +
	"  • Alternatively, run this command with sudo/admin privileges\n\n"

// amdNoDriverText is what amd-smi logs where the kernel module is not loaded.
const amdNoDriverText = "ERROR:root:Unable to get devices, driver not initialized (amdgpu not found in modules)\n" +
	"ERROR:root:Unable to detect any GPU devices, check amdgpu version and module status (sudo modprobe amdgpu)\n"

// amdSections maps the options of `amd-smi static` to the members they choose.
var amdSections = map[string][]string{
	"--asic": {"asic"}, "-a": {"asic"}, "--bus": {"bus"}, "-b": {"bus"}, "--ifwi": {"ifwi"}, "-I": {"ifwi"},
	"--limit": {"limit"}, "-l": {"limit"}, "--driver": {"driver"}, "-d": {"driver"}, "--board": {"board"}, "-B": {"board"},
	"--ras": {"ras"}, "-r": {"ras"}, "--partition": {"partition"}, "-p": {"partition"}, "--numa": {"numa"}, "-u": {"numa"},
	"--vram": {"vram"}, "-v": {"vram"}, "--cache": {"cache_info"}, "-c": {"cache_info"},
	"--soc-pstate": {"soc_pstate"}, "--xgmi-plpd": {"xgmi_plpd"}, "--process-isolation": {"process_isolation"},
}

func amdSMI(h Hardware, c Call) Answer {
	if len(c.Args) == 0 {
		return Answer{Err: "moaid-lab: amd-smi without a subcommand is not known here\n", Code: amdBadArgument}
	}
	asJSON := false
	var sections []string
	for _, a := range c.Args[1:] {
		section, ok := amdSections[a]
		switch {
		case a == "--json":
			asJSON = true
		case ok && c.Args[0] == "static":
			sections = append(sections, section...)
		default:
			return Answer{Err: fmt.Sprintf("usage: amd-smi %s [-h] [--json]\namd-smi: error: unrecognized arguments: %s\n", c.Args[0], a), Code: amdBadArgument}
		}
	}
	switch {
	case c.Args[0] == "version":
		return amdVersion(h, asJSON)
	case c.Args[0] != "list" && c.Args[0] != "static" || !asJSON:
		return Answer{Err: fmt.Sprintf("moaid-lab: amd-smi %s is not known here\n", strings.Join(c.Args, " ")), Code: amdBadArgument}
	case !h.DriverLoaded:
		return Answer{Err: amdNoDriverText, Code: amdNoDriver}
	case c.Args[0] == "list":
		return Answer{Out: render(amdList(h))}
	}
	gpus := amdStatic(h)
	notice := ""
	if !c.Caller.Privileged {
		notice = fmt.Sprintf(amdNotice, c.Caller.RenderGID)
		for i := range gpus {
			gpus[i] = amdHide(gpus[i])
		}
	}
	if sections != nil {
		for i := range gpus {
			gpus[i] = slices.DeleteFunc(gpus[i], func(m member) bool { return m.key != "gpu" && !slices.Contains(sections, m.key) })
		}
	}
	if h.BareList {
		return Answer{Out: notice + render(gpus)}
	}
	return Answer{Out: notice + render(object{{"gpu_data", gpus}})}
}

func amdVersion(h Hardware, asJSON bool) Answer {
	p := profiles[h.Profile]
	driver, log := p.driver, ""
	if !h.DriverLoaded {
		driver, log = notAvailable, amdNoDriverText
	}
	if !asJSON {
		return Answer{Err: log, Out: fmt.Sprintf(
			"AMDSMI Tool: %s | AMDSMI Library version: %s | ROCm version: %s | amdgpu version: %s | amd_hsmp_driver version: N/A\n",
			amdToolVersion, amdLibraryVersion, p.platform, driver)}
	}
	return Answer{Err: log, Out: render([]object{{
		{"tool", "AMDSMI Tool"}, {"version", amdToolVersion}, {"amdsmi_library_version", amdLibraryVersion},
		{"rocm_version", p.platform}, {"amdgpu_version", driver}, {"amd_hsmp_driver_version", notAvailable},
	}})}
}

func amdList(h Hardware) []object {
	list := []object{}
	for i, bus := range profiles[h.Profile].buses {
		if h.lost(i) {
			continue
		}
		thing := gpuThing(i)
		list = append(list, object{
			{"gpu", i},
			{"bdf", fmt.Sprintf("0000:%02x:00.0", bus)},
			{"uuid", fmt.Sprintf("%sff-0000-1000-80%s-%s", digest(6, h.Host, thing), digest(2, h.Host, "board"), digest(12, h.Host, thing+"/uuid"))},
			{"kfd_id", decimal(65536, h.Host, thing+"/kfd")},
			{"node_id", i + 2},
			{"partition_id", 0},
		})
	}
	return list
}
