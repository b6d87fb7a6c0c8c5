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
	if s.replica == nil || s.replica.engine.gone {
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
		s.replica.statsAt = d.own.now()
		s.replica.stats = &api.EngineStats{Waiting: m.Waiting, Running: m.Running, KVBlocksFree: m.KVBlocksFree, KVBlocksTotal: m.KVBlocksTotal, StepMicrosP50: m.StepMicrosP50, StepMicrosP99: m.StepMicrosP99}
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
		d.refusedHello(s, h, code, why)
		s.refuse(h.Seq, code, code == enginesock.CodeUnknownEngine, why)
		return
	}
	r := d.engines[h.Engine].replicas[h.DataRank]
	if r.generation != h.Generation {
		d.newGeneration(r, h.Generation)
	}
	s.replica, s.kind, s.rank = r, h.Session, h.Rank
	s.home, s.generation = r, h.Generation
	r.engine.admitted(h)
	s.known.Store(true)
	s.log = s.log.With("engine", h.Engine, "session", h.Session, "rank", h.Rank, "data_rank", h.DataRank)
	old := r.sched
	if h.Session == enginesock.Worker {
		old = r.workers[h.Rank]
		r.workers[h.Rank] = s
	} else {
		r.sched = s
	}
	if old != nil && old != s {
		old.replica = nil
		old.close()
	}
	if r.connected() {
		r.missing = 0
	}
	s.log.Info("engine session opened", "generation", h.Generation)
	s.send(&enginesock.OK{Seq: h.Seq, LeaseMillis: d.lease.Milliseconds(), MaxWaiting: maxWaiting, Instance: d.instance.String(),
		Node: d.cfg.Node, OnTransferFailure: r.engine.reg.OnTransferFailure}, nil)
	if h.Session == enginesock.Scheduler {
		for _, m := range r.outbox {
			s.send(m, nil)
		}
		r.outbox = nil
	}
	d.changed()
}

// admit says why a hello is refused; an empty reason admits it.
func (d *Daemon) admit(s *session, h *enginesock.Hello) (enginesock.Code, string) {
	e := d.engines[h.Engine]
	switch {
	case s.known.Load():
		return enginesock.CodeBadRequest, "the session has said hello already"
	case h.Version != enginesock.Version:
		return enginesock.CodeVersion, fmt.Sprintf("version %d is not spoken here, only %d", h.Version, enginesock.Version)
	case e == nil:
		return enginesock.CodeUnknownEngine, fmt.Sprintf("no engine %q is registered on this node", h.Engine)
	}
	if err := peercred.Check(s.peer.UID, s.peer.PID, e.reg.UID, e.reg.Unit); err != nil {
		return enginesock.CodeUnauthorized, err.Error()
	}
	switch {
	case h.Fingerprint.Hash() != e.format.hash:
		return enginesock.CodeFingerprint, "the fingerprint differs from the registered one: " + fingerprintDifference(e.reg.Fingerprint, h.Fingerprint)
	case h.World != e.ranks():
		return enginesock.CodeBadRequest, fmt.Sprintf("world is %d, the registered ranks.tensor %d", h.World, e.ranks())
	case h.Replicas() != len(e.replicas):
		return enginesock.CodeBadRequest, fmt.Sprintf("data_size is %d, the registered one %d", h.Replicas(), len(e.replicas))
	case slices.Contains(e.replicas[h.DataRank].past, h.Generation):
		return enginesock.CodeGeneration, "a newer generation of this engine has connected"
	}
	return "", ""
}

// newGeneration ends everything of the replica's earlier run. The new one is
// started by the same unit after the old one's processes died.
func (d *Daemon) newGeneration(r *replica, generation string) {
	if r.generation != "" {
		r.past = append(r.past, r.generation)
		r.past = r.past[max(0, len(r.past)-8):]
	}
	d.endReplica(r, true, "the engine was restarted")
	for _, s := range r.sessions() {
		s.replica = nil
		s.close()
	}
	r.sched, r.outbox, r.stats, r.wantRoom = nil, nil, nil, false
	clear(r.workers)
	r.generation, r.missing = generation, d.own.now()
	for rank, a := range r.arenas {
		if a != nil && a.Bytes() != r.engine.arenaBytes() {
			a.Retire()
			r.arenas[rank] = nil
		}
	}
}

// sessionGone notes that a session ended; its transfers wait a lease for it.
func (d *Daemon) sessionGone(s *session) {
	r := s.replica
	if r == nil {
		return
	}
	s.replica = nil
	if r.sched == s {
		r.sched = nil
	}
	if s.kind == enginesock.Worker && r.workers[s.rank] == s {
		r.workers[s.rank] = nil
	}
	if r.missing == 0 {
		r.missing = d.own.now()
	}
	s.log.Info("engine session closed")
	d.changed()
}
