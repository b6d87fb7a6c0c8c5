package kvd

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvd/peercred"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
)

// onRequest answers one request. file is of an adopt only; it is closed here.
func (d *Daemon) onRequest(s *session, req enginesock.Request, file *os.File) {
	seq := req.SeqNumber()
	if h, ok := req.(*enginesock.Hello); ok {
		closeFile(file)
		d.onHello(s, h)
		return
	}
	if s.engine == nil || s.engine.gone {
		closeFile(file)
		s.refuse(seq, enginesock.CodeUnauthorized, false, "the first request of a session is hello")
		return
	}
	if ad, ok := req.(*enginesock.Adopt); ok {
		d.onAdopt(s, ad, file)
		return
	}
	if err := d.dispatch(s, req); err != nil {
		var r *transfer.Refused
		if errors.As(err, &r) {
			s.refuse(seq, enginesock.Code(r.Code), r.Code == string(enginesock.CodeNoRoom), r.Why)
			return
		}
		s.refuse(seq, enginesock.CodeInternal, false, err.Error())
	}
}

func refused(code enginesock.Code, format string, args ...any) error {
	return &transfer.Refused{Code: string(code), Why: fmt.Sprintf(format, args...)}
}

// dispatch handles requests of a session that has said hello. Requests of a
// scheduler and of a worker are not interchangeable.
func (d *Daemon) dispatch(s *session, req enginesock.Request) error {
	seq := req.SeqNumber()
	worker := s.kind == enginesock.Worker
	switch m := req.(type) {
	case *enginesock.Ping:
		s.ok(seq)
		return nil
	case *enginesock.Arena, *enginesock.Stored, *enginesock.Loaded:
		if !worker {
			return refused(enginesock.CodeBadRequest, "%s is a request of workers", req.Type())
		}
	default:
		if worker {
			return refused(enginesock.CodeBadRequest, "%s is a request of schedulers", m.Type())
		}
	}
	switch m := req.(type) {
	case *enginesock.Arena:
		return d.onArena(s, m)
	case *enginesock.Reserve:
		return d.onReserve(s, m)
	case *enginesock.Offer:
		return d.onOffer(s, m)
	case *enginesock.Withdraw:
		return d.onWithdraw(s, m)
	case *enginesock.Stored:
		return d.onStored(s, m)
	case *enginesock.Claim:
		return d.onClaim(s, m)
	case *enginesock.Release:
		return d.onRelease(s, m)
	case *enginesock.Loaded:
		return d.onLoaded(s, m)
	case *enginesock.Stats:
		s.engine.statsAt = d.own.now()
		s.engine.stats = &api.EngineStats{Waiting: m.Waiting, Running: m.Running, KVBlocksFree: m.KVBlocksFree, KVBlocksTotal: m.KVBlocksTotal, StepMicrosP50: m.StepMicrosP50, StepMicrosP99: m.StepMicrosP99}
		s.ok(seq)
		return nil
	}
	return refused(enginesock.CodeUnknownType, "%s is no request", req.Type())
}

func (d *Daemon) onHello(s *session, h *enginesock.Hello) {
	if code, why := d.admit(s, h); why != "" {
		if code == enginesock.CodeUnauthorized {
			d.metrics.authRejections.WithLabelValues("engine").Inc()
		}
		s.log.Warn("engine session refused", "engine", h.Engine, "code", code, "reason", why)
		s.refuse(h.Seq, code, code == enginesock.CodeUnknownEngine, why)
		return
	}
	e := d.engines[h.Engine]
	if e.generation != h.Generation {
		d.newGeneration(e, h.Generation)
	}
	s.engine, s.kind, s.rank = e, h.Session, h.Rank
	s.known.Store(true)
	s.log = s.log.With("engine", e.reg.Name, "session", h.Session, "rank", h.Rank)
	old := e.sched
	if h.Session == enginesock.Worker {
		old = e.workers[h.Rank]
		e.workers[h.Rank] = s
	} else {
		e.sched = s
	}
	if old != nil && old != s {
		old.engine = nil
		old.close()
	}
	if e.connected() {
		e.missing = 0
	}
	s.log.Info("engine session opened", "generation", h.Generation)
	s.send(&enginesock.OK{Seq: h.Seq, LeaseMillis: d.lease.Milliseconds(), MaxWaiting: maxWaiting, Instance: d.instance.String(),
		Node: d.cfg.Node, OnTransferFailure: e.reg.OnTransferFailure}, nil)
	if h.Session == enginesock.Scheduler {
		for _, r := range e.outbox {
			s.send(r, nil)
		}
		e.outbox = nil
	}
	d.changed()
}

// admit says why a hello is refused; an empty reason admits it.
func (d *Daemon) admit(s *session, h *enginesock.Hello) (enginesock.Code, string) {
	e := d.engines[h.Engine]
	switch {
	case s.known.Load():
		return enginesock.CodeBadRequest, "the session has said hello already"
	case h.Version != 0:
		return enginesock.CodeVersion, fmt.Sprintf("version %d is not spoken here, only 0", h.Version)
	case e == nil:
		return enginesock.CodeUnknownEngine, fmt.Sprintf("no engine %q is registered on this node", h.Engine)
	}
	if err := peercred.Check(s.peer.UID, s.peer.PID, e.reg.UID, e.reg.Unit); err != nil {
		return enginesock.CodeUnauthorized, err.Error()
	}
	switch {
	case h.Fingerprint.Hash() != e.reg.Fingerprint.Hash():
		return enginesock.CodeFingerprint, "the fingerprint differs from the registered one: " + fingerprintDifference(e.reg.Fingerprint, h.Fingerprint)
	case h.World != e.ranks():
		return enginesock.CodeBadRequest, fmt.Sprintf("world is %d, the registered tensor_size %d", h.World, e.ranks())
	case slices.Contains(e.past, h.Generation):
		return enginesock.CodeGeneration, "a newer generation of this engine has connected"
	}
	return "", ""
}

// newGeneration ends everything of the engine's earlier run. The new one is
// started by the same unit after the old one's processes died.
func (d *Daemon) newGeneration(e *engine, generation string) {
	if e.generation != "" {
		e.past = append(e.past, e.generation)
		e.past = e.past[max(0, len(e.past)-8):]
	}
	d.endEngine(e, true, "the engine was restarted")
	for _, s := range append(slices.Clone(e.workers), e.sched) {
		if s != nil {
			s.engine = nil
			s.close()
		}
	}
	e.sched, e.outbox, e.stats, e.wantRoom = nil, nil, nil, false
	clear(e.workers)
	e.generation, e.missing = generation, d.own.now()
	for rank, a := range e.arenas {
		if a != nil && a.Bytes() != e.arenaBytes() {
			a.Retire()
			e.arenas[rank] = nil
		}
	}
}

// sessionGone notes that a session ended; its transfers wait a lease for it.
func (d *Daemon) sessionGone(s *session) {
	e := s.engine
	if e == nil {
		return
	}
	s.engine = nil
	if e.sched == s {
		e.sched = nil
	}
	if s.kind == enginesock.Worker && e.workers[s.rank] == s {
		e.workers[s.rank] = nil
	}
	if e.missing == 0 {
		e.missing = d.own.now()
	}
	s.log.Info("engine session closed")
	d.changed()
}
