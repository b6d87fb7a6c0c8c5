package standin

import (
	"fmt"
	"io"
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

// Tools lists what Run can be.
var Tools = []string{"nvidia-smi", "amd-smi", "lspci"}

// Run answers a call as the tool would on the given hardware. It returns the exit status.
func Run(h Hardware, c Call, stdout, stderr io.Writer) int {
	p := profiles[h.Profile]
	if c.Tool != "lspci" && h.HangSeconds > 0 { // lspci does not ask the driver
		c.Sleep(time.Duration(h.HangSeconds) * time.Second)
	}
	switch {
	case c.Tool == "lspci":
		return lspci(h, c.Args, stdout, stderr)
	case c.Tool == "nvidia-smi" && p.vendor == "nvidia":
		return nvidiaSMI(h, c, stdout)
	case c.Tool == "amd-smi" && p.vendor == "amd":
		return amdSMI(h, c, stdout, stderr)
	}
	fmt.Fprintf(stderr, "moaid-lab: a host of profile %q has no %s\n", h.Profile, c.Tool)
	return 127
}
