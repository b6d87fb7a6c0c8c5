package facts

import (
	"encoding/csv"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// NVIDIAGPU is one row of nvidia-smi --query-gpu.
type NVIDIAGPU struct {
	Accelerator
	Driver string
	MIG    bool
}

// ParseNVIDIAQuery reads "nvidia-smi --query-gpu=… --format=csv" with its header, in any order of columns; index, name
// and pci.bus_id must be among them.
func ParseNVIDIAQuery(text string) ([]NVIDIAGPU, error) {
	r := csv.NewReader(strings.NewReader(text))
	r.TrimLeadingSpace = true
	r.LazyQuotes = true
	r.FieldsPerRecord = -1
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi: %w", err)
	}
	// Warnings may stand before the header.
	for len(rows) > 0 && strings.TrimSpace(rows[0][0]) != "index" {
		rows = rows[1:]
	}
	if len(rows) == 0 {
		return nil, errors.New("nvidia-smi: no header line with index first")
	}
	col := map[string]int{}
	for i, h := range rows[0] {
		name, _, _ := strings.Cut(strings.TrimSpace(h), " ")
		col[name] = i
	}
	var out []NVIDIAGPU
	for _, row := range rows[1:] {
		if len(row) != len(rows[0]) {
			return nil, fmt.Errorf("nvidia-smi: row %.80q has %d fields, the header %d", strings.Join(row, ","), len(row), len(rows[0]))
		}
		get := func(name string) string {
			i, ok := col[name]
			if !ok {
				return ""
			}
			v := strings.TrimSpace(row[i])
			if strings.HasPrefix(v, "[") || v == "N/A" {
				return "" // [N/A], [Not Supported], [Unknown Error]
			}
			return v
		}
		g, err := nvidiaRow(get)
		if err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, nil
}

func nvidiaRow(get func(string) string) (NVIDIAGPU, error) {
	g := NVIDIAGPU{Driver: get("driver_version"), MIG: get("mig.mode.current") == "Enabled"}
	index, err := strconv.Atoi(get("index"))
	if err != nil || index < 0 {
		return g, fmt.Errorf("nvidia-smi: index %.40q is not a number", get("index"))
	}
	pci, err := NormalPCI(get("pci.bus_id"))
	if err != nil {
		return g, fmt.Errorf("nvidia-smi: GPU %d: %w", index, err)
	}
	g.Accelerator = Accelerator{Index: index, Vendor: VendorNVIDIA, Name: get("name"), Model: NormalModel(get("name")), PCI: pci, UUID: get("uuid")}
	if mem := get("memory.total"); mem != "" {
		if g.MemoryBytes, err = parseSize(mem, "MiB"); err != nil {
			return g, fmt.Errorf("nvidia-smi: GPU %d: memory.total: %w", index, err)
		}
	}
	return g, nil
}

// parseSize reads "81559 MiB" or "196592 MB"; without a unit, def is the unit. Both vendors' tools mean powers of two.
func parseSize(s, def string) (int64, error) {
	num, unit, ok := strings.Cut(strings.TrimSpace(s), " ")
	if !ok {
		unit = def
	}
	shift := map[string]uint{"B": 0, "KB": 10, "KiB": 10, "MB": 20, "MiB": 20, "GB": 30, "GiB": 30}
	by, ok := shift[strings.TrimSpace(unit)]
	n, err := strconv.ParseInt(num, 10, 64)
	if err != nil || !ok || n < 0 || n > 1<<32<<(30-by) {
		return 0, fmt.Errorf("%.40q is not a size", s)
	}
	return n << by, nil
}

var cudaVersion = regexp.MustCompile(`CUDA Version:\s*([0-9]+\.[0-9]+)`)

// ParseCUDAVersion finds the CUDA version in nvidia-smi's table, or returns "".
func ParseCUDAVersion(text string) string {
	if m := cudaVersion.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}
