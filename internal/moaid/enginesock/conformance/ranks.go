package conformance

import (
	"errors"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

func arenas(t *testing.T, e *env) {
	e.open()
	names := map[string]bool{}
	var all []Client
	for _, r := range e.prefill {
		for _, w := range r.workers {
			ok, err := w.OpenArena()
			switch {
			case err != nil:
				t.Fatal(err)
			case ok.Bytes < arenaBytes/2 || ok.Bytes > arenaBytes:
				t.Fatalf("an arena of %d bytes, want its share of the staging memory, %d", ok.Bytes, arenaBytes)
			case names[ok.Arena]:
				t.Fatalf("two workers have the arena %s", ok.Arena)
			}
			names[ok.Arena] = true
			all = append(all, w)
		}
	}
	apart(t, all)
}

// apart checks that no two workers write to the same memory.
func apart(t *testing.T, workers []Client) {
	t.Helper()
	for i, w := range workers {
		if err := w.Write(0, []byte{byte(i), 1, 2, 3}); err != nil {
			t.Fatal(err)
		}
	}
	for i, w := range workers {
		if b, err := w.Read(0, 1); err != nil || b[0] != byte(i) {
			t.Errorf("the arena of worker %d has what worker %v wrote, %v", i, b, err)
		}
	}
}

// foreignRanges: a rank stores what it alone has, and nothing beyond the payload.
func foreignRanges(_ *testing.T, e *env) {
	f := e.begun()
	f.offer()
	f.claim(0)
	for rank, w := range f.p.workers {
		beyond := kvcache.Range{Offset: f.layout.Bytes - 1, Length: 2}
		e.refused(w, &enginesock.Stored{ID: f.id, Ranges: []kvcache.Range{beyond}}, enginesock.CodeBadRequest)
		for _, s := range f.layout.Sections {
			if e.format.Fingerprint.Primary(s.Group, rank) != rank {
				e.refused(w, &enginesock.Stored{ID: f.id, Ranges: []kvcache.Range{{Offset: s.Offset, Length: s.Bytes()}}}, enginesock.CodeBadRequest)
			}
		}
	}
	f.store()
	f.committed(0)
}

// allStored: whichever rank stores last, nothing is ready before it has.
func allStored(t *testing.T, e *env) {
	e.open()
	for last, own := range e.flow().own {
		if len(own) == 0 {
			continue
		}
		f := e.flow()
		f.fill()
		f.offer()
		f.claim(0)
		for rank, own := range f.own {
			if rank != last {
				f.storeRank(rank, own...)
			}
		}
		f.stands()
		if s := f.poll(); s.Verdict != enginesock.Pending {
			t.Fatalf("verdict %+v before rank %d has stored", s, last)
		}
		f.storeRank(last, own...)
		f.committed(0)
	}
}

// oneReport: a client sends no second report of a rank, and a daemon takes none.
func oneReport(t *testing.T, e *env) {
	f := e.arrived()
	for rank, w := range f.d.workers {
		f.loadRank(rank, true)
		if err := w.Loaded(f.id, true); !errors.Is(err, enginesock.ErrReported) {
			t.Errorf("the client of rank %d reported twice: %v", rank, err)
		}
		e.refused(w, &enginesock.Loaded{ID: f.id, OK: true}, enginesock.CodeDuplicate)
		e.refused(w, &enginesock.Loaded{ID: f.id, OK: false}, enginesock.CodeDuplicate)
	}
	f.ended(enginesock.Committed, enginesock.Committed)
}

// allLoaded: whichever rank loads last, nothing is committed before it has, be
// there bytes that it alone has or not.
func allLoaded(_ *testing.T, e *env) {
	e.open()
	for last := range e.format.ranks() {
		f := e.flow()
		f.fill()
		f.offer()
		f.store()
		f.claim(0)
		f.received(0)
		for rank := range f.own {
			if rank != last {
				f.loadRank(rank, true)
			}
		}
		f.stands()
		f.loadRank(last, true)
		f.ended(enginesock.Committed, enginesock.Committed)
	}
}

// oneLoadFailed: whichever rank fails, the transfer is aborted, though not before
// the others have stopped copying.
func oneLoadFailed(_ *testing.T, e *env) {
	e.open()
	for bad := range e.format.ranks() {
		f := e.flow()
		f.fill()
		f.offer()
		f.store()
		f.claim(0)
		f.ready()
		for rank := range f.own {
			f.loadRank(rank, rank != bad)
		}
		f.ended(enginesock.Aborted, enginesock.Aborted)
	}
}

// workersComeBack: each rank's session is lost once on both sides, before it has
// stored and before it has loaded.
func workersComeBack(_ *testing.T, e *env) {
	e.open()
	for lost := range e.format.ranks() {
		f := e.flow()
		f.fill()
		f.offer()
		f.claim(0)
		e.lose(f.p, enginesock.Worker, lost)
		f.store()
		s := f.ready()
		e.lose(f.d, enginesock.Worker, lost)
		f.same(s, 0)
		f.committed(0)
	}
}
