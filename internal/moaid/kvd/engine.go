package kvd

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/arena"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/pacing"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
)

// engine is a registered engine. Only the owner touches it.
type engine struct {
	reg       api.Engine
	format    format // of its fingerprint, which never changes: another one is another engine
	replicas  []*replica
	budget    *pacing.Budget
	draining  bool
	gone      bool   // deleted
	http      string // why the HTTP socket does not answer; empty if it does
	stopProbe func()
	refused   refusal // of the last session that was not opened
	sends     int     // records in Daemon.sends
	recvs     int
	turn      int // the replica that comes first among equals
}

func newEngine(reg api.Engine) *engine {
	e := &engine{reg: reg, format: formatOf(reg.Fingerprint), http: "not asked yet", budget: pacing.New(ingestLimit(reg), 0)}
	for rank := range replicas(reg) {
		e.replicas = append(e.replicas, newReplica(e, rank, reg.Fingerprint.Ranks.Tensor))
	}
	return e
}

// replicas is the number of data-parallel replicas of a registration.
func replicas(reg api.Engine) int { return max(1, reg.DataSize) }

func ingestLimit(reg api.Engine) int64 {
	if reg.MaxInFlight > 0 {
		return reg.MaxInFlight
	}
	return defaultIngest
}

// ranks is the number of workers of a replica.
func (e *engine) ranks() int { return e.reg.Fingerprint.Ranks.Tensor }

// arenaBytes is the size of each rank's arena, in each replica.
func (e *engine) arenaBytes() int64 {
	n := e.reg.StagingBytes / int64(e.ranks()*len(e.replicas))
	return n - n%arena.PageSize
}

// generation names the run of the engine: the replica's, or one that changes with
// any of several replicas'.
func (e *engine) generation() string {
	if len(e.replicas) == 1 {
		return e.replicas[0].generation
	}
	all := ""
	for _, r := range e.replicas {
		all += r.generation + "/"
	}
	if len(all) == len(e.replicas) {
		return ""
	}
	h := sha256.Sum256([]byte(all))
	return hex.EncodeToString(h[:16])
}

// sessions are those of all replicas that are there.
func (e *engine) sessions() []*session {
	var out []*session
	for _, r := range e.replicas {
		out = append(out, r.sessions()...)
	}
	return out
}

// arenas are those of all replicas that are there.
func (e *engine) arenas() []*arena.Arena {
	var out []*arena.Arena
	for _, r := range e.replicas {
		for _, a := range r.arenas {
			if a != nil {
				out = append(out, a)
			}
		}
	}
	return out
}

// notReady says why requests should not be sent to the engine; empty if they may.
func (e *engine) notReady() string {
	for _, r := range e.replicas {
		if why := r.notReady(); why != "" {
			return e.refused.explain(why)
		}
	}
	if e.http != "" {
		return "the HTTP socket does not answer /health: " + e.http
	}
	return ""
}

func (e *engine) stagingFree() int64 {
	var n int64
	for _, a := range e.arenas() {
		n += int64(a.Usage().Free) * arena.PageSize
	}
	return n
}

// load is the last load feedback, summed over the replicas, with the step times of
// the slowest. It is nil unless every replica's says something of now.
func (e *engine) load(now transfer.Instant) *api.EngineStats {
	sum := &api.EngineStats{}
	for _, r := range e.replicas {
		s := r.load(now)
		if s == nil {
			return nil
		}
		sum.Waiting += s.Waiting
		sum.Running += s.Running
		sum.KVBlocksFree += s.KVBlocksFree
		sum.KVBlocksTotal += s.KVBlocksTotal
		sum.StepMicrosP50 = max(sum.StepMicrosP50, s.StepMicrosP50)
		sum.StepMicrosP99 = max(sum.StepMicrosP99, s.StepMicrosP99)
	}
	return sum
}

func (e *engine) status(now transfer.Instant, c compatibility) api.EngineStatus {
	why := e.notReady()
	return api.EngineStatus{Engine: e.reg, Ready: why == "", Reason: why, Refused: string(e.refused.current(now)), Generation: e.generation(), Draining: e.draining, Stats: e.load(now),
		StagingFree: e.stagingFree(), Incompatible: c.incompatible, Conversions: c.conversions}
}

// checkEngine reports which attribute of a registration is wrong, and why.
func checkEngine(r api.Engine) (attribute string, err error) {
	if err := r.Fingerprint.Validate(); err != nil {
		return "fingerprint", fmt.Errorf("fingerprint: %w", err)
	}
	switch {
	case !slices.Contains([]string{"prefill", "decode", "both"}, r.EngineRole):
		return "role", fmt.Errorf("role %q is none of prefill, decode, both", r.EngineRole)
	case r.DataSize < 0 || r.DataSize > enginesock.MaxReplicas || replicas(r)*(r.Fingerprint.Ranks.Tensor+1) > maxUserSessions:
		return "data_size", fmt.Errorf("data_size %d is outside 0 to %d, or makes more than %d processes of %d ranks each", r.DataSize, enginesock.MaxReplicas, maxUserSessions, r.Fingerprint.Ranks.Tensor)
	case r.Fingerprint.Ranks.Pipeline != 1:
		return "fingerprint", fmt.Errorf("fingerprint: ranks.pipeline is %d, and only one stage can be transferred", r.Fingerprint.Ranks.Pipeline)
	case r.StagingBytes/int64(r.Fingerprint.Ranks.Tensor*replicas(r)) < arena.PageSize:
		return "staging_bytes", fmt.Errorf("staging_bytes %d gives less than %d to each of %d ranks", r.StagingBytes, arena.PageSize, r.Fingerprint.Ranks.Tensor*replicas(r))
	case r.StagingBytes > 1<<50:
		return "staging_bytes", fmt.Errorf("staging_bytes %d is more than any host has", r.StagingBytes)
	case r.MaxInFlight < 0:
		return "max_in_flight", fmt.Errorf("max_in_flight %d is negative", r.MaxInFlight)
	case r.HTTPSocket != "" && (r.HTTPSocket[0] != '/' || len(r.HTTPSocket) > 107):
		return "http_socket", fmt.Errorf("http_socket %q is no absolute path of at most 107 bytes", r.HTTPSocket)
	case r.UID < 0 || r.UID > 1<<32-2:
		return "uid", fmt.Errorf("uid %d is none", r.UID)
	case len(r.Unit) > 255:
		return "unit", fmt.Errorf("unit is longer than 255 bytes")
	case !slices.Contains([]string{"", "recompute", "fail"}, r.OnTransferFailure):
		return "on_transfer_failure", fmt.Errorf("on_transfer_failure %q is neither recompute nor fail", r.OnTransferFailure)
	}
	return "", nil
}
