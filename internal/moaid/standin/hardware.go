package standin

// HardwareFile says which hardware a host pretends to have, and what is wrong with it.
const HardwareFile = "/etc/moaid-lab/hardware.json"

// Hardware is the content of HardwareFile.
type Hardware struct {
	Profile      string `json:"profile"`
	Host         string `json:"host"` // serial numbers and the like are derived from it
	DriverLoaded bool   `json:"driver_loaded"`
	Lost         []int  `json:"lost"`         // indexes of accelerators that have fallen off the bus
	HangSeconds  int    `json:"hang_seconds"` // how long each tool hangs before it answers
}

// New describes healthy hardware.
func New(profile, host string) Hardware {
	return Hardware{Profile: profile, Host: host, DriverLoaded: true, Lost: []int{}}
}
