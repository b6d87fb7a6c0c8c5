package standin

import (
	"fmt"
	"strings"
)

// amdStatic is the answer of `amd-smi static` to somebody who may see all, one object a GPU.
func amdStatic(h Hardware) []object {
	gpus := []object{}
	for i := range profiles[h.Profile].buses {
		if !h.lost(i) {
			gpus = append(gpus, amdGPU(h, i))
		}
	}
	return gpus
}

// amdHide is what those see who may not open the device nodes: what comes from the driver is "N/A", what comes from
// sysfs stays.
func amdHide(gpu object) object {
	var out object
	for _, m := range gpu {
		part, _ := m.value.(object)
		switch m.key {
		case "asic", "driver", "vram":
			m.value = part.hidden()
		case "ifwi":
			m.value = notAvailable
		case "ras":
			m.value = append(object{part[0], {part[1].key, notAvailable}, {part[2].key, notAvailable}}, part[3:]...)
		}
		out = append(out, m)
	}
	return out
}

func amdGPU(h Hardware, i int) object {
	p := profiles[h.Profile]
	serial := strings.ToUpper(digest(16, h.Host, gpuThing(i)))
	node := p.node(i)
	mask := [2]string{"FFFFFFFFFFFFFFFF", "0000000000000000"}[node]
	affinity := object{{"cpu_list_0", object{{"bitmask", mask}, {"cpu_cores_affinity", p.cpus[node]}}}}
	blocks := object{}
	for b := range strings.FieldsSeq("UMC SDMA GFX MMHUB ATHUB PCIE_BIF HDP XGMI_WAFL DF SMN MP0 MP1 MCA VCN JPEG IH MPIO") {
		blocks = append(blocks, member{b, "ENABLED"})
	}
	return object{
		{"gpu", i},
		{"asic", object{
			{"market_name", p.name}, {"vendor_id", "0x" + p.chip.vendor}, {"vendor_name", "Advanced Micro Devices Inc. [AMD/ATI]"},
			{"subvendor_id", "0x" + p.chip.vendor}, {"device_id", "0x" + p.chip.device}, {"subsystem_id", "0x" + p.chip.device},
			{"rev_id", "0x00"}, {"asic_serial", "0x" + serial}, {"oam_id", []int{1, 0, 2, 3, 5, 4, 6, 7}[i]},
			{"num_compute_units", 304}, {"target_graphics_version", "gfx942"},
		}},
		{"bus", object{
			{"bdf", fmt.Sprintf("0000:%02x:00.0", p.buses[i])}, {"max_pcie_width", 16}, {"max_pcie_speed", measure(32, "GT/s")},
			{"pcie_levels", notAvailable}, {"pcie_interface_version", "Gen 5"}, {"slot_type", "OAM"},
		}},
		{"ifwi", object{
			{"name", "AMD MI300X_HW_SRIOV_CVS_1VF"}, {"build_date", "2025/07/27 14:45"}, {"part_number", "113-M3000108-103"},
			{"version", "00159017"},
		}},
		{"limit", amdLimits()},
		{"driver", object{{"name", "amdgpu"}, {"version", p.driver}}},
		{"board", object{
			{"model_number", "102-G30211-0C"}, {"product_serial", fmt.Sprintf("6924%08d", decimal(99999999, h.Host, gpuThing(i)+"/board"))},
			{"fru_id", "113-AMDG302110C08-100-300000067H"}, {"product_name", "AMD Instinct MI300X OAM"}, {"manufacturer_name", "AMD"},
		}},
		{"ras", object{
			{"eeprom_version", "0x10000"}, {"bad_page_threshold", 128}, {"bad_page_threshold_exceeded", "False"},
			{"parity_schema", "DISABLED"}, {"single_bit_schema", "DISABLED"}, {"double_bit_schema", "DISABLED"},
			{"poison_schema", "ENABLED"}, {"ecc_block_state", blocks},
		}},
		{"partition", object{{"accelerator_partition", "SPX"}, {"memory_partition", "NPS1"}, {"partition_id", 0}}},
		{"soc_pstate", object{
			{"num_supported", 4}, {"current_id", 0}, {"policies", amdPolicies("soc_pstate_default", 4)},
		}},
		{"xgmi_plpd", object{
			{"num_supported", 3}, {"current_id", 0}, {"plpds", amdPolicies("plpd_disallow", 3)}, {"policies", amdPolicies("plpd_disallow", 3)},
		}},
		{"process_isolation", "Disabled"},
		{"numa", object{{"node", node}, {"affinity", node}, {"cpu_affinity", affinity}, {"socket_affinity", affinity}}},
		{"vram", object{
			{"type", "HBM"}, {"vendor", "SAMSUNG"}, {"size", measure(196592, "MB")}, {"bit_width", 8192}, {"max_bandwidth", measure(5325, "GB/s")},
		}},
		{"cache_info", amdCaches()},
	}
}

func amdLimits() object {
	return object{
		{"ppt0", object{
			{"max_power_limit", measure(750, "W")}, {"min_power_limit", measure(0, "W")}, {"socket_power_limit", measure(750, "W")},
		}},
		{"ppt1", object{
			{"max_power_limit", notAvailable}, {"min_power_limit", notAvailable}, {"socket_power_limit", notAvailable},
		}},
		{"slowdown_edge_temperature", notAvailable},
		{"slowdown_hotspot_temperature", measure(100, "C")},
		{"slowdown_vram_temperature", measure(105, "C")},
		{"shutdown_edge_temperature", notAvailable},
		{"shutdown_hotspot_temperature", measure(110, "C")},
		{"shutdown_vram_temperature", measure(115, "C")},
		{"ptl_state", notAvailable},
		{"ptl_format", notAvailable},
	}
}

// amdPolicies is a list of n policies, of which only the first has a description, and all have number 0.
func amdPolicies(first string, n int) []object {
	list := []object{{{"policy_id", 0}, {"policy_description", first}}}
	for len(list) < n {
		list = append(list, object{{"policy_id", 0}, {"policy_description", ""}})
	}
	return list
}

func amdCaches() []object {
	var list []object
	for i, c := range []struct {
		kb, level, shared, instances int
		kind                         string
	}{
		{32, 1, 1, 304, "DATA_CACHE"}, {64, 1, 2, 144, "INST_CACHE"}, {4096, 2, 304, 1, "DATA_CACHE"}, {262144, 3, 304, 1, "DATA_CACHE"},
	} {
		list = append(list, object{
			{"cache", i}, {"cache_properties", []string{c.kind, "SIMD_CACHE"}}, {"cache_size", measure(c.kb, "KB")},
			{"cache_level", c.level}, {"max_num_cu_shared", c.shared}, {"num_cache_instance", c.instances},
		})
	}
	return list
}
