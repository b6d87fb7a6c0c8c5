package fleet

import "fmt"

// Hold is something that one resource of a fleet may have, and no other.
type Hold struct {
	Key       string // what it is; two holds with one key are the same thing
	Part      string // of what Key says, where there are several; "" is the whole of it
	Attribute string // of the resource, that decides it
	What      string // for messages: `the name "front" on node gateway`
	Holder    string // for messages: which resource, with what tells it from another
	Fix       string // what to do about two; a sentence without its end, or "" for a name
}

func (h Hold) clashes(o Hold) bool {
	return h.Key == o.Key && (h.Part == "" || o.Part == "" || h.Part == o.Part)
}

// Hold records what a resource instance is planned to have, in place of what was recorded for it before. It returns a
// *[HeldError], and records nothing, if this run has planned something of it for another instance. Of two that are planned
// at the same time, one is refused.
func (f *Fleet) Hold(instance string, holds []Hold) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.holds, instance)
	for _, h := range holds {
		for _, others := range f.holds {
			for _, o := range others {
				if h.clashes(o) {
					return &HeldError{Hold: h, Other: o}
				}
			}
		}
	}
	f.holds[instance] = holds
	return nil
}

// HeldError says that two resources of one run would have the same thing.
type HeldError struct{ Hold, Other Hold }

// Error implements error.
func (e *HeldError) Error() string {
	return fmt.Sprintf("%s is taken twice: by %s, and by %s", e.Hold.What, e.Hold.Holder, e.Other.Holder)
}

// Explain implements diagnose.Explained.
func (e *HeldError) Explain() (summary, fix string) {
	if fix = e.Hold.Fix; fix == "" {
		fix = fmt.Sprintf("Give each a %s of its own, also over modules, count and for_each, or remove one of the two", e.Hold.Attribute)
	}
	return "Two resources are the same thing", fix + ". Each would change and remove what the other made"
}

// DiagnosticAttribute implements diagnose.Attributed.
func (e *HeldError) DiagnosticAttribute() string { return e.Hold.Attribute }
