package kvd

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/arena"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
)

// onArena gives the worker its rank's arena. Making one takes seconds for large
// ones, so it is done elsewhere and comes back as an event.
func (d *Daemon) onArena(s *session, m *enginesock.Arena) error {
	r, rank := s.replica, s.rank
	e := r.engine
	if a := r.arenas[rank]; a != nil {
		s.send(&enginesock.OK{Seq: m.Seq, Arena: a.Name, Bytes: a.Bytes()}, a.File())
		return nil
	}
	if r.making[rank] {
		return refused(enginesock.CodeConflict, "the arena of this rank is being made")
	}
	r.making[rank] = true
	size := e.arenaBytes()
	name := fmt.Sprintf("%s-%d-%d-%s", e.reg.Name, r.rank, rank, randomHex(4))
	d.background(func() {
		a, err := arena.Create(name, size, d.roomHook(r))
		if err == nil {
			err = a.Prefault(d.ctx)
		}
		d.own.post(func() { d.arenaMade(s, m.Seq, r, rank, a, err) })
	})
	return nil
}

func (d *Daemon) arenaMade(s *session, seq int64, r *replica, rank int, a *arena.Arena, err error) {
	e := r.engine
	r.making[rank] = false
	if err == nil && (e.gone || r.arenas[rank] != nil || a.Bytes() != e.arenaBytes()) {
		err = errors.New("the engine's registration changed while its arena was made")
	}
	if err != nil {
		if a != nil {
			a.Retire()
		}
		d.log.Error("no staging arena", "engine", e.reg.Name, "rank", rank, "error", err)
		s.refuse(seq, enginesock.CodeInternal, true, err.Error())
		return
	}
	r.arenas[rank] = a
	s.send(&enginesock.OK{Seq: seq, Arena: a.Name, Bytes: a.Bytes()}, a.File())
	d.roomMade(r)
}

// onAdopt takes an arena back after a restart of the daemon.
func (d *Daemon) onAdopt(s *session, m *enginesock.Adopt, file *os.File) {
	defer closeFile(file)
	r := s.replica
	e := r.engine
	switch {
	case s.kind != enginesock.Worker:
		s.refuse(m.Seq, enginesock.CodeBadRequest, false, "adopt is a request of workers")
		return
	case file == nil:
		s.refuse(m.Seq, enginesock.CodeBadArena, false, "the packet carried no descriptor of a sealed memfd")
		return
	case m.Bytes != e.arenaBytes():
		s.refuse(m.Seq, enginesock.CodeBadArena, false, fmt.Sprintf("the arena has %d bytes, the registration gives each rank %d", m.Bytes, e.arenaBytes()))
		return
	case len(m.Arena) > 128:
		s.refuse(m.Seq, enginesock.CodeBadArena, false, "the arena's name is too long")
		return
	}
	if a := r.arenas[s.rank]; a != nil {
		if same(a.File(), file) {
			s.send(&enginesock.OK{Seq: m.Seq, Arena: a.Name, Bytes: a.Bytes()}, nil)
			return
		}
		s.refuse(m.Seq, enginesock.CodeBadArena, false, "the rank has another arena already")
		return
	}
	for _, o := range d.engines {
		if slices.ContainsFunc(o.arenas(), func(a *arena.Arena) bool { return same(a.File(), file) }) {
			s.refuse(m.Seq, enginesock.CodeBadArena, false, "another rank or engine has this arena")
			return
		}
	}
	a, err := arena.Adopt(m.Arena, file, m.Bytes, d.roomHook(r))
	if err != nil {
		s.refuse(m.Seq, enginesock.CodeBadArena, false, err.Error())
		return
	}
	r.arenas[s.rank] = a
	s.log.Info("arena adopted", "arena", a.Name, "bytes", a.Bytes())
	s.send(&enginesock.OK{Seq: m.Seq, Arena: a.Name, Bytes: a.Bytes()}, nil)
	d.roomMade(r)
}

// same reports whether two descriptors are of one file.
func same(a, b *os.File) bool {
	x, errX := a.Stat()
	y, errY := b.Stat()
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// roomHook is called by arenas when pages became free, on any goroutine and the
// owner's too: it must not wait for the owner.
func (d *Daemon) roomHook(r *replica) func() {
	return func() {
		d.roomMu.Lock()
		d.room[r] = struct{}{}
		d.roomMu.Unlock()
		select {
		case d.roomWake <- struct{}{}:
		default:
		}
	}
}

// roomMade lets those who waited for pages try again.
func (d *Daemon) roomMade(r *replica) {
	if r.engine.gone {
		return
	}
	if r.wantRoom {
		r.wantRoom = false
		r.tell(&enginesock.Room{})
	}
	d.retryLeases(r)
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
