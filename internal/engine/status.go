package engine

import (
	"slices"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/service"
)

// status is what became of an engine, one word for each part.
type status struct {
	service.Status
	registration string
}

// healthy is what every plan asks for.
var healthy = status{Status: service.Healthy, registration: service.OK}

// draining is the word for an engine that takes no new requests. Only a change that was interrupted leaves it so.
const draining = "draining"

// registrationStatus compares what the daemon knows with what it shall know. The
// user id is the host's affair and not compared.
func registrationStatus(got *api.EngineStatus, want api.Engine) string {
	switch {
	case got == nil:
		return service.Missing
	case !sameRegistration(got.Engine, want):
		return service.Changed
	case got.Draining:
		return draining
	}
	return service.OK
}

func sameRegistration(a, b api.Engine) bool {
	return !needsRestart(a, b) && a.EngineRole == b.EngineRole && sameLimit(a.MaxInFlight, b.MaxInFlight) && a.OnTransferFailure == b.OnTransferFailure
}

// sameLimit compares with what the daemon says; for 0 it may say its default.
func sameLimit(got, want int64) bool { return got == want || want == 0 }

// needsRestart reports whether an engine that opened its sessions under one
// registration has to open them anew under the other: its memory, its cache or
// its identity is another one.
func needsRestart(a, b api.Engine) bool {
	return a.Name != b.Name || a.Unit != b.Unit || a.HTTPSocket != b.HTTPSocket || a.StagingBytes != b.StagingBytes || max(a.DataSize, 1) != max(b.DataSize, 1) || a.Fingerprint.Hash() != b.Fingerprint.Hash()
}

// dying reports whether a unit that was just started ended since. base is how
// often systemd had restarted it by then.
func dying(f service.Found, base int) bool {
	return slices.Contains([]string{"failed", "inactive"}, f.Unit.ActiveState) || f.Unit.NRestarts > base || strings.Contains(f.Unit.SubState, "auto-restart")
}
