package standin

import (
	"fmt"
	"time"
)

// Caller is who runs a tool, as far as the tools care.
type Caller struct {
	Privileged bool   // may open the accelerators' device nodes: root, or in the group render
	RenderGID  string // number of that group, for the notice to others
}

// Call is one run of a tool.
type Call struct {
	Tool   string // nvidia-smi, amd-smi or lspci
	Args   []string
	Caller Caller
	Now    time.Time
	Sleep  func(time.Duration) // how a hanging driver is waited for
}

// Answer is what a tool prints and its exit status.
type Answer struct {
	Out, Err string
	Code     int
}

// Run answers a call as the tool would on the given hardware.
func Run(h Hardware, c Call) Answer {
	p := profiles[h.Profile]
	if c.Tool != "lspci" && h.HangSeconds > 0 { // lspci does not ask the driver
		c.Sleep(time.Duration(h.HangSeconds) * time.Second)
	}
	switch {
	case c.Tool == "lspci":
		return lspci(h, c.Args)
	case c.Tool == "nvidia-smi" && p.vendor == "nvidia":
		return nvidiaSMI(h, c)
	case c.Tool == "amd-smi" && p.vendor == "amd":
		return amdSMI(h, c)
	}
	return Answer{Err: fmt.Sprintf("moaid-lab: a host of profile %q has no %s\n", h.Profile, c.Tool), Code: 127}
}
