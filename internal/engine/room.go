package engine

import (
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/moai-dev/terraform-provider-moai/internal/diagnose"
	"github.com/moai-dev/terraform-provider-moai/internal/engines"
	"github.com/moai-dev/terraform-provider-moai/internal/fleet"
)

// room is what a node has for an engine, as far as this run knows.
type room struct {
	spec   engines.Spec
	node   string
	memory int64               // bytes of the machine; 0 if not known
	gpus   int                 // accelerators; -1 if not known
	others []fleet.EngineClaim // engines planned on the same node
}

// room records what the engine takes of its node, and gathers what is left.
func (r *Resource) room(s engines.Spec, c fleet.Coordinates) room {
	out := room{spec: s, node: c.Name, gpus: -1}
	out.others = r.fleet.PlanEngine(fleet.EngineClaim{Node: c.Name, Engine: s.Name, GPUs: s.GPUs, StagingBytes: s.StagingBytes})
	if f, ok := r.fleet.Node(c).KnownFacts(); ok {
		out.memory = f.MemoryBytes
	}
	if n, ok := r.fleet.GPUs(c); ok {
		out.gpus = n
	}
	return out
}

// refusals say what the node cannot give.
func (r room) refusals() diag.Diagnostics {
	var diags diag.Diagnostics
	all := r.spec.StagingBytes
	for _, o := range r.others {
		all += o.StagingBytes
	}
	switch {
	case r.memory > 0 && r.spec.StagingBytes >= r.memory:
		diags.Append(diagnose.AtError(attributePath("staging.memory"), "Too much staging memory", fmt.Sprintf(
			"%d bytes do not fit into the machine of node %s, which has %d bytes of memory for everything. Ask for less.", r.spec.StagingBytes, r.node, r.memory)))
	case r.memory > 0 && all >= r.memory:
		diags.Append(diagnose.AtError(attributePath("staging.memory"), "Too much staging memory", fmt.Sprintf(
			"The %d engines of node %s ask for %d bytes together, and the machine has %d bytes of memory for everything. Ask for less.", len(r.others)+1, r.node, all, r.memory)))
	}
	for i, gpu := range r.spec.GPUs {
		at := path.Root("gpus").AtListIndex(i)
		if r.gpus >= 0 && gpu >= r.gpus {
			diags.Append(diagnose.AtError(at, "Node has no such accelerator", fmt.Sprintf(
				"Node %s has %s, and there is no index %d. Correct gpus, or expect.gpu_count of the node.", r.node, counted(r.gpus), gpu)))
			continue
		}
		for _, o := range r.others {
			if slices.Contains(o.GPUs, gpu) {
				diags.Append(diagnose.AtError(at, "Accelerator is taken", fmt.Sprintf(
					"Accelerator %d of node %s belongs to engine %s, which has gpus = %v. Give each engine of a node accelerators of its own.", gpu, r.node, o.Engine, o.GPUs)))
			}
		}
	}
	return diags
}

// counted says how many accelerators there are, and which indexes they have.
func counted(n int) string {
	switch n {
	case 0:
		return "no accelerator"
	case 1:
		return "one accelerator (index 0)"
	}
	return fmt.Sprintf("%d accelerators (indexes 0 to %d)", n, n-1)
}
