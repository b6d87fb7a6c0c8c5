package conformance

import (
	"slices"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// other is a replica of the same engine.
func other(all []*replica, r *replica) *replica {
	return all[(slices.Index(all, r)+1)%len(all)]
}

// replicaIDs: an id is of the replica that reserved or claimed it, and no other
// may touch it or hears of it.
func replicaIDs(_ *testing.T, e *env) {
	e.open()
	f := e.flow()
	op, od := other(e.prefill, f.p), other(e.decode, f.d)
	f.fill()
	e.refused(op.sched, f.reserveRequest(), enginesock.CodeConflict)
	e.refused(op.sched, f.offerRequest(), enginesock.CodeUnknownID)
	e.refused(op.sched, &enginesock.Withdraw{ID: f.id}, enginesock.CodeUnknownID)
	for _, w := range op.workers {
		e.refused(w, &enginesock.Stored{ID: f.id, Ranges: []kvcache.Range{{Length: 1}}}, enginesock.CodeUnknownID)
	}
	f.offer()
	f.store()
	f.claim(0)
	again := f.claimRequest(0)
	e.refused(od.sched, &again, enginesock.CodeConflict)
	e.refused(od.sched, &enginesock.Release{ID: f.id}, enginesock.CodeUnknownID)
	f.received(0)
	for _, w := range od.workers {
		e.refused(w, &enginesock.Loaded{ID: f.id, OK: true}, enginesock.CodeUnknownID)
	}
	f.load()
	f.ended(enginesock.Committed, enginesock.Committed)
	e.silent(op.sched, f.id)
	e.silent(od.sched, f.id)
}

// replicaArenas: what is leased in one replica's arenas leaves the others' alone,
// and no replica takes another's arena for its own.
func replicaArenas(t *testing.T, e *env) {
	e.open()
	var all []Client
	for _, r := range e.decode {
		all = append(all, r.workers...)
	}
	apart(t, all)
	thief := e.connect(other(e.prefill, e.p), enginesock.Worker, 0)
	if _, err := thief.OpenArena(); err != nil {
		t.Fatal(err)
	}
	e.reconnect(thief, e.p, enginesock.Worker, 0) // it has the other replica's arena now
	if err := thief.Adopt(); err == nil {
		t.Error("a worker gave another replica's arena back and the daemon took it")
	}
}

// replicaGenerations: replicas are started one by one. A new start of one ends
// its own transfers and sessions only.
func replicaGenerations(_ *testing.T, e *env) {
	for _, r := range slices.Concat(e.prefill, e.decode) {
		r.generation = newID()
	}
	f := e.sent()
	op := other(e.prefill, f.p)
	restarted := *e
	restarted.p = op
	lost := restarted.flow()
	lost.fill()
	old := *op
	op.generation = newID()
	e.openReplica(op)
	e.ends(old.sched)
	for _, w := range old.workers {
		e.ends(w)
	}
	e.refused(op.sched, lost.offerRequest(), enginesock.CodeConflict, enginesock.CodeUnknownID)
	f.claim(0)
	f.committed(0)
	next := restarted.flow()
	next.fill()
	next.offer()
	next.store()
	next.claim(0)
	next.committed(0)
}

// replicasAtOnce: every prefill replica sends to every decode replica.
func replicasAtOnce(_ *testing.T, e *env) {
	e.open()
	var all []*flow
	for _, p := range e.prefill {
		for _, d := range e.decode {
			f := e.flow()
			f.p, f.d = p, d
			f.fill()
			f.offer()
			f.claim(0)
			all = append(all, f)
		}
	}
	for _, f := range all {
		f.store()
	}
	for _, f := range all {
		f.committed(0)
	}
}
