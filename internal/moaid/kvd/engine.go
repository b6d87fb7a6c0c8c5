package kvd

import (
	"fmt"
	"slices"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/arena"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/pacing"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
)

// engine is a registered engine. Only the owner touches it.
type engine struct {
	reg        api.Engine
	generation string
	past       []string // generations that are over
	sched      *session
	workers    []*session
	missing    transfer.Instant // since when a session is missing; 0: none is
	arenas     []*arena.Arena
	making     []bool // an arena of this rank is being made
	budget     *pacing.Budget
	draining   bool
	gone       bool // deleted
	stats      *api.EngineStats
	statsAt    transfer.Instant // when they came
	http       string           // why the HTTP socket does not answer; empty if it does
	stopProbe  func()
	outbox     []enginesock.Reply // events while there is no scheduler
	wantRoom   bool
	sends      int // records in Daemon.sends
	recvs      int
}

func newEngine(reg api.Engine) *engine {
	n := reg.Fingerprint.Ranks.Tensor
	e := &engine{reg: reg, workers: make([]*session, n), arenas: make([]*arena.Arena, n), making: make([]bool, n), http: "not asked yet"}
	e.budget = pacing.New(ingestLimit(reg), 0)
	return e
}

func ingestLimit(reg api.Engine) int64 {
	if reg.MaxInFlight > 0 {
		return reg.MaxInFlight
	}
	return defaultIngest
}

// ranks is the number of workers.
func (e *engine) ranks() int { return e.reg.Fingerprint.Ranks.Tensor }

// arenaBytes is the size of each rank's arena.
func (e *engine) arenaBytes() int64 {
	n := e.reg.StagingBytes / int64(e.ranks())
	return n - n%arena.PageSize
}

// connected reports whether every session is there.
func (e *engine) connected() bool { return e.sched != nil && !slices.Contains(e.workers, nil) }

// notReady says why requests should not be sent to the engine; empty if they may.
func (e *engine) notReady() string {
	if e.sched == nil {
		return "the engine's scheduler has not connected to the engine socket"
	}
	for rank := range e.workers {
		switch {
		case e.workers[rank] == nil:
			return fmt.Sprintf("the worker of rank %d has not connected to the engine socket", rank)
		case e.arenas[rank] == nil:
			return fmt.Sprintf("the worker of rank %d has no staging arena yet", rank)
		}
	}
	if e.http != "" {
		return "the HTTP socket does not answer /health: " + e.http
	}
	return ""
}

func (e *engine) stagingFree() int64 {
	var n int64
	for _, a := range e.arenas {
		if a != nil {
			n += int64(a.Usage().Free) * arena.PageSize
		}
	}
	return n
}

// lease takes n bytes in every rank's arena, or nothing.
func (e *engine) lease(n int64) ([]*arena.Lease, bool) {
	out := make([]*arena.Lease, 0, len(e.arenas))
	extents := 0
	for _, a := range e.arenas {
		var l *arena.Lease
		ok := a != nil
		if ok {
			l, ok = a.Lease(n)
		}
		if ok {
			out = append(out, l)
			extents += len(l.Extents())
		}
		if !ok || extents > maxExtents {
			for _, l := range out {
				l.Undo()
			}
			return nil, false
		}
	}
	return out, true
}

// tell sends an event to the scheduler, or keeps it until the scheduler is back.
func (e *engine) tell(r enginesock.Reply) {
	if e.sched != nil {
		e.sched.send(r, nil)
		return
	}
	if e.generation != "" && len(e.outbox) < 2*maxTransfers {
		e.outbox = append(e.outbox, r)
	}
}

// statsLife is how long load feedback says something: engines send it every second.
const statsLife = 5 * time.Second

// load is the last load feedback, nil if it is too old to say anything of now.
func (e *engine) load(now transfer.Instant) *api.EngineStats {
	if e.stats == nil || now.Sub(e.statsAt) > statsLife {
		return nil
	}
	return e.stats
}

func (e *engine) status(now transfer.Instant, incompatible []string) api.EngineStatus {
	why := e.notReady()
	return api.EngineStatus{Engine: e.reg, Ready: why == "", Reason: why, Generation: e.generation, Draining: e.draining, Stats: e.load(now), StagingFree: e.stagingFree(), Incompatible: incompatible}
}

// checkEngine reports which attribute of a registration is wrong, and why.
func checkEngine(r api.Engine) (attribute string, err error) {
	if err := r.Fingerprint.Validate(); err != nil {
		return "fingerprint", fmt.Errorf("fingerprint: %w", err)
	}
	switch {
	case !slices.Contains([]string{"prefill", "decode", "both"}, r.EngineRole):
		return "role", fmt.Errorf("role %q is none of prefill, decode, both", r.EngineRole)
	case r.StagingBytes/int64(r.Fingerprint.Ranks.Tensor) < arena.PageSize:
		return "staging_bytes", fmt.Errorf("staging_bytes %d gives less than %d to each of %d ranks", r.StagingBytes, arena.PageSize, r.Fingerprint.Ranks.Tensor)
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
