package fleet

import "fmt"

// Leave records that a resource is planned to be removed from a machine, so that the plan of its successor does not take
// it for a stranger.
func (f *Fleet) Leave(machineID, resource string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leaving[machineID+"\x00"+resource] = true
}

// Leaves reports whether [Fleet.Leave] was told so.
func (f *Fleet) Leaves(machineID, resource string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leaving[machineID+"\x00"+resource]
}

// Plan records that a node is planned to be made on the machine at c, and returns a *[TwiceError] if this run has planned
// another node on that machine, or a node of that name on another one. The second of the two would be refused by the
// machine itself, but only during apply.
func (f *Fleet) Plan(c Coordinates) error {
	if c.MachineID == "" {
		return nil // a machine that does not say who it is is refused for that
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.planned {
		if (o.Name == c.Name) != (o.MachineID == c.MachineID) {
			return &TwiceError{Node: c, Other: o}
		}
	}
	f.planned = append(f.planned, c)
	return nil
}

// TwiceError says that two nodes of one plan have the same machine or the same name.
type TwiceError struct{ Node, Other Coordinates }

// Error implements error.
func (e *TwiceError) Error() string {
	if e.Node.Name == e.Other.Name {
		return fmt.Sprintf("the node %s is planned on two machines: %s (%s) and %s (%s)", e.Node.Name, e.Other.Host, e.Other.MachineID, e.Node.Host, e.Node.MachineID)
	}
	return fmt.Sprintf("the nodes %s (%s) and %s (%s) are both the machine %s", e.Other.Name, e.Other.Host, e.Node.Name, e.Node.Host, e.Node.MachineID)
}

// Explain implements diagnose.Explained.
func (e *TwiceError) Explain() (summary, fix string) {
	if e.Node.Name == e.Other.Name {
		return "Node name is used twice", "Give each moai_node of the fleet a name of its own, also over modules, count and for_each"
	}
	return "One machine for two nodes", "A machine is one moai_node. Correct ssh.host of one of them, or remove one and use the other in its place"
}

// DiagnosticAttribute implements diagnose.Attributed.
func (e *TwiceError) DiagnosticAttribute() string {
	if e.Node.Name == e.Other.Name {
		return "name"
	}
	return "ssh.host"
}
