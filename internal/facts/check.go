package facts

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Expect is what a configuration says about a host. Empty and zero fields say nothing; GPUCount is a pointer, since none
// is something to expect.
type Expect struct {
	Vendor   string // nvidia, amd or none
	GPU      string // model: H100, MI300X, …
	GPUCount *int
}

// Mismatch is one expectation that a host does not meet.
type Mismatch struct {
	Attribute string // vendor, gpu or gpu_count
	Want      string
	Got       string
	Fix       string
}

// String is one sentence.
func (m Mismatch) String() string {
	return fmt.Sprintf("%s: expected %s, the host has %s. %s", m.Attribute, m.Want, m.Got, m.Fix)
}

// Check compares a host with what was expected of it. Nothing returned means that all holds.
func Check(f Facts, e Expect) []Mismatch {
	var out []Mismatch
	if e.Vendor != "" && !strings.EqualFold(e.Vendor, f.Vendor) {
		out = append(out, Mismatch{"vendor", e.Vendor, f.Vendor, fix(f, "Change expect.vendor, or the host")})
	}
	if e.GPU != "" {
		got := slices.Sorted(maps.Keys(f.Models()))
		if len(got) != 1 || !sameModel(e.GPU, got[0]) {
			for i, m := range got {
				if m == "" {
					got[i] = "an unknown model"
				}
			}
			text := strings.Join(got, " and ")
			if text == "" {
				text = "no accelerator"
			}
			out = append(out, Mismatch{"gpu", e.GPU, text, fix(f, "Change expect.gpu, or the host")})
		}
	}
	if e.GPUCount != nil && *e.GPUCount != len(f.Accelerators) {
		out = append(out, Mismatch{"gpu_count", strconv.Itoa(*e.GPUCount), strconv.Itoa(len(f.Accelerators)), fix(f, "Change expect.gpu_count, or the host")})
	}
	return out
}

func sameModel(want, got string) bool {
	if m := NormalModel(want); m != "" {
		want = m
	}
	return got != "" && strings.EqualFold(want, got)
}

// fix adds what the probe found about accelerators, which is the usual reason for a mismatch.
func fix(f Facts, def string) string {
	for _, x := range f.Findings {
		switch x.Subject {
		case "lspci", "nvidia-smi", "amd-smi-static":
			return def + ". On the host, " + x.Subject + " " + x.Text
		}
		if strings.Count(x.Subject, ":") == 2 {
			return def + ". On the host, " + x.Subject + ": " + x.Text
		}
	}
	return def
}
