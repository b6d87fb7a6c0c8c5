package facts

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// AMDGPU is one entry of amd-smi static.
type AMDGPU struct {
	Accelerator
	Device   string // PCI device, four hex digits, or ""
	Driver   string
	Readable bool // false where the tool was not allowed to look into the device
}

// ParseAMDStatic reads "amd-smi static --json": {"gpu_data": [...]} of ROCm 7 or a bare list before it, perhaps after a
// page of text. Where the user may not look, whole objects are the string "N/A".
func ParseAMDStatic(text string) ([]AMDGPU, error) {
	body, err := jsonPart(text)
	if err != nil {
		return nil, fmt.Errorf("amd-smi static: %w", err)
	}
	list, err := amdList(body)
	if err != nil {
		return nil, fmt.Errorf("amd-smi static: %w", err)
	}
	var out []AMDGPU
	for i, e := range list {
		g, err := amdEntry(e)
		if err != nil {
			return nil, fmt.Errorf("amd-smi static: entry %d: %w", i, err)
		}
		out = append(out, g)
	}
	return out, nil
}

// tree is JSON of uncertain shape.
type tree map[string]any

func amdList(body json.RawMessage) ([]tree, error) {
	var wrapped struct {
		Data []tree `json:"gpu_data"`
	}
	var list []tree
	if err := json.Unmarshal(body, &list); err == nil {
		return list, nil
	}
	if err := json.Unmarshal(body, &wrapped); err != nil {
		return nil, fmt.Errorf("neither a list nor an object with gpu_data: %w", err)
	}
	if wrapped.Data == nil {
		return nil, errors.New("object has no gpu_data")
	}
	return wrapped.Data, nil
}

// at follows keys, without regard to case; text and numbers come as text, "N/A" and what is not there as "".
func (t tree) at(keys ...string) string {
	var v any = map[string]any(t)
	for _, k := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		v = nil
		for name, x := range m {
			if strings.EqualFold(name, k) {
				v = x
			}
		}
	}
	switch x := v.(type) {
	case string:
		if x == "N/A" {
			return ""
		}
		return x
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return ""
}

func amdEntry(t tree) (AMDGPU, error) {
	index, err := strconv.Atoi(t.at("gpu"))
	if err != nil || index < 0 {
		return AMDGPU{}, fmt.Errorf("gpu number %.40q is not a number", t.at("gpu"))
	}
	pci, err := NormalPCI(t.at("bus", "bdf"))
	if err != nil {
		return AMDGPU{}, fmt.Errorf("gpu %d: %w", index, err)
	}
	name := t.at("asic", "market_name")
	if name == "" {
		name = t.at("board", "product_name")
	}
	g := AMDGPU{
		Accelerator: Accelerator{Index: index, Vendor: VendorAMD, Name: name, PCI: pci, UUID: t.at("asic", "asic_serial")},
		Device:      strings.ToLower(strings.TrimPrefix(t.at("asic", "device_id"), "0x")),
		Driver:      t.at("driver", "version"),
		Readable:    t.at("asic", "device_id") != "",
	}
	g.Model = ModelOf("1002", g.Device, name)
	size, unit := t.at("vram", "size", "value"), t.at("vram", "size", "unit")
	if size == "" {
		size, unit, _ = strings.Cut(t.at("vram", "size"), " ")
	}
	if size != "" {
		if unit == "" {
			unit = "MB"
		}
		if g.MemoryBytes, err = parseSize(size+" "+unit, "MB"); err != nil {
			return AMDGPU{}, fmt.Errorf("gpu %d: vram: %w", index, err)
		}
	}
	return g, nil
}

// ParseAMDVersion reads "amd-smi version --json": a list of one object, or the object.
func ParseAMDVersion(text string) (rocm, driver string, err error) {
	body, err := jsonPart(text)
	if err != nil {
		return "", "", fmt.Errorf("amd-smi version: %w", err)
	}
	var list []tree
	if err := json.Unmarshal(body, &list); err != nil {
		var one tree
		if err := json.Unmarshal(body, &one); err != nil {
			return "", "", fmt.Errorf("amd-smi version: %w", err)
		}
		list = []tree{one}
	}
	if len(list) == 0 {
		return "", "", errors.New("amd-smi version: list is empty")
	}
	return list[0].at("rocm_version"), list[0].at("amdgpu_version"), nil
}
