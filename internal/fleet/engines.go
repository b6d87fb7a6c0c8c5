package fleet

import (
	"cmp"
	"slices"
)

// EngineClaim is what an engine is planned to take of its node.
type EngineClaim struct {
	Node, Engine string
	GPUs         []int // indexes of accelerators; none if the engine names none
	StagingBytes int64
}

// PlanEngine records a claim, in place of the same engine's former one, and returns those that this run has planned for
// other engines of the node, by name. Of two engines that are planned at the same time, one at least sees the other.
func (f *Fleet) PlanEngine(c EngineClaim) (others []EngineClaim) {
	f.mu.Lock()
	defer f.mu.Unlock()
	same := func(o EngineClaim) bool { return o.Node == c.Node && o.Engine == c.Engine }
	f.claims = append(slices.DeleteFunc(f.claims, same), c)
	for _, o := range f.claims {
		if o.Node == c.Node && o.Engine != c.Engine {
			others = append(others, o)
		}
	}
	slices.SortFunc(others, func(a, b EngineClaim) int { return cmp.Compare(a.Engine, b.Engine) })
	return others
}

// ExpectGPUs records how many accelerators a node is said to have; nil if nothing is said.
func (f *Fleet) ExpectGPUs(node string, n *int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.gpus, node)
	if n != nil {
		f.gpus[node] = *n
	}
}

// GPUs is the number of accelerators of a node: what its resource expects, or what its machine has said. ok is false if
// neither is known.
func (f *Fleet) GPUs(c Coordinates) (n int, ok bool) {
	f.mu.Lock()
	n, ok = f.gpus[c.Name]
	f.mu.Unlock()
	if ok {
		return n, true
	}
	facts, ok := f.Node(c).KnownFacts()
	return len(facts.Accelerators), ok
}
