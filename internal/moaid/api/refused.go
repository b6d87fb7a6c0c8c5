package api

// Codes of [EngineStatus.Refused] that no waiting ends: the engine would be
// refused again. They are the engine socket's.
const (
	RefusedVersion      = "version"
	RefusedFingerprint  = "fingerprint"
	RefusedUnauthorized = "unauthorized"
	RefusedBadRequest   = "bad_request"
)
