package standin

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// HardwareFile says which hardware a host pretends to have, and what is wrong with it.
const HardwareFile = "/etc/moaid-lab/hardware.json"

// Hardware is the content of HardwareFile.
type Hardware struct {
	Profile      string `json:"profile"` // h100x8 or mi300x8
	Host         string `json:"host"`    // serial numbers and the like are derived from it
	DriverLoaded bool   `json:"driver_loaded"`
	Lost         []int  `json:"lost"`                // indexes of accelerators that have fallen off the bus
	HangSeconds  int    `json:"hang_seconds"`        // how long the tools that ask the driver hang before they answer
	BareList     bool   `json:"bare_list,omitempty"` // amd-smi static as before ROCm 7: a list without gpu_data
}

// New describes healthy hardware.
func New(profile, host string) Hardware {
	return Hardware{Profile: profile, Host: host, DriverLoaded: true, Lost: []int{}}
}

// Load reads the hardware of this host.
func Load(file string) (Hardware, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Hardware{}, fmt.Errorf("hardware of this host: %w", err)
	}
	var h Hardware
	if err := json.Unmarshal(text, &h); err != nil {
		return Hardware{}, fmt.Errorf("hardware of this host, %s: %w", file, err)
	}
	if _, ok := profiles[h.Profile]; !ok {
		return Hardware{}, fmt.Errorf("hardware of this host, %s: no profile %q", file, h.Profile)
	}
	return h, nil
}

// Save writes the hardware of this host, so that a tool that runs meanwhile sees the old or the new.
func (h Hardware) Save(file string) error {
	text, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("hardware of this host: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("hardware of this host: %w", err)
	}
	return nil
}

func (h Hardware) lost(i int) bool { return slices.Contains(h.Lost, i) }
