package kvd

import (
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// putBack returns packets that were taken and not written, before all others.
func (o *outbox) putBack(list []packet) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(slices.Clone(list), o.list...)
}

// undelivered gives the events that a scheduler's session did not bring to its client
// to the next session of the same run. Answers end with their session: the client asks
// again. It is called when nothing writes to the session or queues for it any more.
func (d *Daemon) undelivered(s *session) {
	r := s.home
	if r == nil || s.kind != enginesock.Scheduler || r.engine.gone || r.generation != s.generation {
		return
	}
	for _, p := range s.out.take() {
		switch m := p.reply.(type) {
		case *enginesock.VerdictEvent:
			if m.Verdict != enginesock.Ready || d.stillReady(m.ID) { // else its failure was told since
				r.tell(m)
			}
		case *enginesock.Released, *enginesock.Closed, *enginesock.Room:
			r.tell(m)
		}
	}
}

// stillReady reports whether what was ready may be loaded yet.
func (d *Daemon) stillReady(id string) bool {
	w, err := wire.ParseID(id)
	if err != nil {
		return false
	}
	t := d.recvs[w]
	return t != nil && t.m.Verdict().Ready && !t.m.State().Terminal()
}
