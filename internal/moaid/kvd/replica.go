package kvd

import (
	"fmt"
	"slices"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/arena"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
)

// replica is one data-parallel replica of an engine: a scheduler and all tensor
// ranks, with a cache and arenas of its own. A transfer belongs to the replica
// that reserved or claimed it. Only the owner touches it.
type replica struct {
	engine     *engine
	rank       int // data-parallel rank
	generation string
	past       []string // generations that are over
	sched      *session
	workers    []*session
	missing    transfer.Instant // since when a session is missing; 0: none is
	arenas     []*arena.Arena
	making     []bool // an arena of this rank is being made
	stats      *api.EngineStats
	statsAt    transfer.Instant   // when they came
	outbox     []enginesock.Reply // events while there is no scheduler
	wantRoom   bool
	forwarding int // requests that are held for it, or that it has not answered
}

func newReplica(e *engine, rank, ranks int) *replica {
	return &replica{engine: e, rank: rank, workers: make([]*session, ranks), arenas: make([]*arena.Arena, ranks), making: make([]bool, ranks)}
}

// ranks is the number of workers.
func (r *replica) ranks() int { return len(r.workers) }

// sessions are those that are there.
func (r *replica) sessions() []*session {
	return slices.DeleteFunc(append(slices.Clone(r.workers), r.sched), func(s *session) bool { return s == nil })
}

// connected reports whether every session is there.
func (r *replica) connected() bool { return r.sched != nil && !slices.Contains(r.workers, nil) }

// name says which part of the engine a session is, for the operator.
func (r *replica) name(part string) string {
	if len(r.engine.replicas) > 1 {
		return fmt.Sprintf("%s of data-parallel rank %d", part, r.rank)
	}
	return part
}

// notReady says why requests should not be sent to the replica; empty if they may.
func (r *replica) notReady() string {
	if r.sched == nil {
		return "the engine's " + r.name("scheduler") + " has not connected to the engine socket"
	}
	for rank := range r.workers {
		switch {
		case r.workers[rank] == nil:
			return "the " + r.name(fmt.Sprintf("worker of rank %d", rank)) + " has not connected to the engine socket"
		case r.arenas[rank] == nil:
			return "the " + r.name(fmt.Sprintf("worker of rank %d", rank)) + " has no staging arena yet"
		}
	}
	return ""
}

// lease takes sizes[rank] bytes in every rank's arena, or nothing.
func (r *replica) lease(sizes []int64) ([]*arena.Lease, bool) {
	out := make([]*arena.Lease, 0, len(r.arenas))
	extents := 0
	for rank, a := range r.arenas {
		var l *arena.Lease
		ok := a != nil
		if ok {
			l, ok = a.Lease(sizes[rank])
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
func (r *replica) tell(m enginesock.Reply) {
	if r.sched != nil {
		r.sched.send(m, nil)
		return
	}
	if r.generation != "" && len(r.outbox) < 2*maxTransfers {
		r.outbox = append(r.outbox, m)
	}
}

// statsLife is how long load feedback says something: engines send it every second.
const statsLife = 5 * time.Second

// load is the last load feedback, nil if it is too old to say anything of now.
func (r *replica) load(now transfer.Instant) *api.EngineStats {
	if r.stats == nil || now.Sub(r.statsAt) > statsLife {
		return nil
	}
	return r.stats
}
