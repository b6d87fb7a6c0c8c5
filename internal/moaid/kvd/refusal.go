package kvd

import (
	"fmt"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvd/peercred"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
)

// refusal is why the last session that an engine wanted was not opened. It is kept
// until that session is.
type refusal struct {
	part string // of the engine: whose session it was
	code enginesock.Code
	why  string
	at   transfer.Instant
}

// refusalLife is how long a refusal says that the engine still asks for the same:
// clients ask every second. What is older may be of a process that is gone.
const refusalLife = 5 * time.Second

// current gives the code of a refusal that is being repeated; empty if none is.
func (r refusal) current(now transfer.Instant) enginesock.Code {
	if r.code == "" || now.Sub(r.at) > refusalLife {
		return ""
	}
	return r.code
}

// explain adds the refusal to what is missing because of it.
func (r refusal) explain(missing string) string {
	if r.code == "" {
		return missing
	}
	return fmt.Sprintf("%s: the last session of its %s was refused (%s): %s", missing, r.part, r.code, r.why)
}

// refusedHello remembers a refusal that the operator should know of. Any user of the
// host may say hello in an engine's name: only who has its user or its unit counts.
func (d *Daemon) refusedHello(s *session, h *enginesock.Hello, code enginesock.Code, why string) {
	e := d.engines[h.Engine]
	if e == nil || s.known.Load() || code == enginesock.CodeGeneration {
		return
	}
	user, unit := s.peer.UID == e.reg.UID, e.reg.Unit != "" && peercred.Check(s.peer.UID, s.peer.PID, s.peer.UID, e.reg.Unit) == nil
	if mine := user && (unit || e.reg.Unit == ""); !mine && (code != enginesock.CodeUnauthorized || !user && !unit) {
		return
	}
	e.refused = refusal{helloPart(h), code, clip(why), d.own.now()}
}

// admitted forgets the refusal of a session that is open now.
func (e *engine) admitted(h *enginesock.Hello) {
	if e.refused.part == helloPart(h) {
		e.refused = refusal{}
	}
}

// helloPart says which part of an engine a hello is of, for the operator.
func helloPart(h *enginesock.Hello) string {
	part := "scheduler"
	if h.Session == enginesock.Worker {
		part = fmt.Sprintf("worker of rank %d", h.Rank)
	}
	if h.Replicas() > 1 {
		part += fmt.Sprintf(" of data-parallel rank %d", h.DataRank)
	}
	return part
}
