package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
)

// refusedLimit is how long sessions of an engine may be refused for one and the same lasting reason. Processes of an
// earlier run that still ask are gone sooner.
const refusedLimit = 10 * time.Second

// lasting are the codes of refusals that no waiting ends: the engine would say the same again.
var lasting = []string{api.RefusedVersion, api.RefusedFingerprint, api.RefusedUnauthorized, api.RefusedBadRequest}

// refusals follows what the daemon says of an engine's sessions while the engine starts.
type refusals struct {
	code  string
	since time.Time
}

// lasted reports whether the answer's refusal is one that lasts, and has for long enough.
func (r *refusals) lasted(a answer, now time.Time) bool {
	if a.ready || !slices.Contains(lasting, a.refused) {
		*r = refusals{}
		return false
	}
	if a.refused != r.code {
		*r = refusals{a.refused, now}
	}
	return now.Sub(r.since) >= refusedLimit
}

// refusedError says that an engine runs, and that its node's daemon will never take it.
type refusedError struct {
	name, host string
	code       string
	reason     string // the daemon's
}

// Error implements error.
func (e *refusedError) Error() string {
	return fmt.Sprintf("the KV daemon of %s refuses the sessions of engine %s: %s", e.host, e.name, e.reason)
}

// Explain implements diagnose.Explained.
func (e *refusedError) Explain() (summary, fix string) {
	summary = "Engine " + e.name + " is not what was configured"
	switch e.code {
	case api.RefusedVersion:
		fix = "The engine's KV connector and moaid are of releases that do not belong together: upgrade the older one"
	case api.RefusedFingerprint:
		fix = "The engine's cache is another than this configuration says: correct model, kv_cache or parallel, or the engine's arguments"
	case api.RefusedUnauthorized:
		fix = "The engine's processes run as another user or outside of its unit: its program must not change either"
	default:
		fix = "The engine introduces itself otherwise than it was registered: correct parallel, or the engine's arguments"
	}
	return summary, fix
}

// DiagnosticAttribute implements diagnose.Attributed.
func (e *refusedError) DiagnosticAttribute() string {
	if e.code == api.RefusedFingerprint {
		return "kv_cache"
	}
	return "kind"
}
