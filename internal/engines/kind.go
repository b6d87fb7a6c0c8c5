package engines

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// Kind is a family of engines with one way of being launched.
type Kind interface {
	// Name is the value of the attribute kind.
	Name() string
	// Defaults fills in what s leaves open.
	Defaults(s Spec) Spec
	// Check lists what the kind cannot do of what s asks. s has its defaults.
	Check(s Spec) []Problem
	// Fingerprint is the KV cache that an engine of s has. s passed Check.
	Fingerprint(s Spec) (kvcache.Fingerprint, error)
	// Launch says how to run s at a place. s passed Check.
	Launch(s Spec, p Place) Launch
	// Observation says how to see what an engine of s computed. s passed Check.
	Observation(s Spec) Observation
}

// Place is where an engine runs.
type Place struct {
	Node         string // name of the node, which travels with KV
	HTTPSocket   string // where the engine listens
	EngineSocket string // where the KV daemon listens
}

// PlaceFor gives the fixed places of an engine called name on a node.
func PlaceFor(node, name string) Place {
	return Place{
		Node:         node,
		HTTPSocket:   "/run/" + RuntimeDirectory(name) + "/http.sock",
		EngineSocket: "/run/moai/engine.sock",
	}
}

// RuntimeDirectory is the directory below /run that belongs to an engine.
func RuntimeDirectory(name string) string { return "moai-engine-" + name }

// Unit is the systemd unit of an engine.
func Unit(name string) string { return "moai-engine-" + name + ".service" }

// Launch is how an engine is started.
type Launch struct {
	Program      string
	Args         []string // without the program; the attribute effective_args
	Env          map[string]string
	NotifyReady  bool          // tells systemd when it is ready, so that a start waits for it
	Network      bool          // needs more than unix sockets
	Devices      bool          // needs the host's accelerators
	StartTimeout time.Duration // until it must be ready
	HealthPath   string        // answers 200 when it serves
}

// Observation says how to look into an engine from outside, through its HTTP
// API.
type Observation struct {
	// MetricsPath serves Prometheus text.
	MetricsPath string
	// ComputedTokens is the counter of prompt tokens that the engine computed
	// itself.
	ComputedTokens string
	// Requests is the counter of finished requests.
	Requests string
	// PromptTokens is the length of a prompt that uses every part of the cache:
	// several blocks, and beyond each window and lag.
	PromptTokens int
	// ServedModel is the model's name in the API.
	ServedModel string
}

// Problem is something that a kind cannot do.
type Problem struct {
	Attribute string // dotted, such as "kv_cache.block_size"
	Summary   string
	Detail    string // what is wrong, why, and what to do
}

func (p Problem) Error() string { return p.Attribute + ": " + p.Summary + ": " + p.Detail }

// kinds are in the order in which messages name them.
var kinds = []Kind{reference{}}

// Names lists the kinds of this version.
func Names() []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name()
	}
	return names
}

// Lookup finds a kind.
func Lookup(name string) (Kind, error) {
	for _, k := range kinds {
		if k.Name() == name {
			return k, nil
		}
	}
	return nil, fmt.Errorf("this version installs engines of kind %s, not %q: use one of them, or a later version of the provider", quoted(Names()), name)
}

// quoted writes names for a sentence: "a", "b" or "c".
func quoted(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = fmt.Sprintf("%q", n)
	}
	return alternatives(q)
}

// alternatives joins words for a sentence: a, b or c.
func alternatives(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// oneOf appends a problem if value is none of choices.
func oneOf(ps []Problem, attribute, value, summary string, choices []string) []Problem {
	if slices.Contains(choices, value) {
		return ps
	}
	return append(ps, Problem{attribute, summary, fmt.Sprintf("%q is not supported by this version. Use %s.", value, quoted(choices))})
}
