package kvd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache/convert"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// sendQueue hands chunks to a session's streams, by as many workers. They convert
// what their claimant stores otherwise.
type sendQueue struct {
	mu      sync.Mutex
	wake    *sync.Cond
	jobs    []chunkJob
	stopped bool
}

// chunkJob is a chunk whose transfer's pages are held.
type chunkJob struct {
	t *sending
	c *conversion
	e transfer.SendChunk
}

func newSendQueue(d *Daemon, s transport.Session, workers int) *sendQueue {
	q := &sendQueue{}
	q.wake = sync.NewCond(&q.mu)
	for range workers {
		d.background(func() { q.work(d, s) })
	}
	return q
}

// sendChunk queues a chunk and holds the transfer's pages until it was written.
func (d *Daemon) sendChunk(t *sending, e transfer.SendChunk) {
	j := chunkJob{t, t.conversion, e}
	ps := d.sessions[e.Session]
	if ps == nil || !t.hold() {
		d.later(func() { _ = d.stepSend(t, sentEvent(e, true)) })
		return
	}
	if !ps.queue.push(j) {
		t.drop()
		d.later(func() { _ = d.stepSend(t, sentEvent(e, true)) })
	}
}

func sentEvent(e transfer.SendChunk, failed bool) transfer.ChunkSent {
	return transfer.ChunkSent{Session: e.Session, Rank: e.Rank, Offset: e.Offset, Length: e.Length, Failed: failed}
}

func (q *sendQueue) push(j chunkJob) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return false
	}
	q.jobs = append(q.jobs, j)
	q.wake.Signal()
	return true
}

// stop ends the workers when the queue is empty: what is queued fails at once,
// since the session is down.
func (q *sendQueue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.wake.Broadcast()
}

func (q *sendQueue) next() (chunkJob, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.jobs) == 0 && !q.stopped {
		q.wake.Wait()
	}
	if len(q.jobs) == 0 {
		return chunkJob{}, false
	}
	j := q.jobs[0]
	q.jobs[0] = chunkJob{}
	q.jobs = q.jobs[1:]
	return j, true
}

func (q *sendQueue) work(d *Daemon, s transport.Session) {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	for {
		j, ok := q.next()
		if !ok {
			return
		}
		r := d.transmit(ctx, s, j)
		j.t.drop()
		d.own.post(func() { d.transmitted(s, j, r) })
	}
}

// transmission is what became of a chunk.
type transmission struct {
	sent      bool
	converted time.Duration // 0: nothing was
	count     convert.Count
	end       *transfer.Fail // the transfer cannot go on
}

// scratch is memory for converted chunks.
var scratch = sync.Pool{New: func() any { return new([wire.MaxChunk]byte) }}

// transmit sends a chunk: the pages themselves, or what is made of them.
func (d *Daemon) transmit(ctx context.Context, s transport.Session, j chunkJob) (r transmission) {
	var src [][]byte
	if j.c.c.Identity() {
		v, err := j.t.ranks[j.e.Rank].view(j.e.Offset, j.e.Length)
		if err != nil { // the machine keeps chunks within what is stored
			r.end = &transfer.Fail{Code: transfer.CodeProtocol, Detail: err.Error()}
			return r
		}
		src = v
	} else {
		if j.t.over.Load() || down(s) {
			return r
		}
		buf, ok := scratch.Get().(*[wire.MaxChunk]byte)
		if !ok { // the pool holds nothing else
			return r
		}
		defer scratch.Put(buf)
		began := time.Now()
		n, err := j.t.fill(j.c, buf[:j.e.Length], j.e)
		r.converted, r.count = max(time.Since(began), 1), n
		switch {
		case err != nil:
			r.end = &transfer.Fail{Code: codeIncompatible, Detail: "the conversion failed: " + err.Error()}
			return r
		case n.Changed() > 0 && j.c.lossless():
			r.end = &transfer.Fail{Code: codeInexact, Detail: fmt.Sprintf(
				"%d of the values of a chunk are beyond the range of the decode engine's format and %d are between its values: use the same kv_cache.dtype on both engines if it happens often", n.Clipped, n.Rounded)}
			return r
		}
		src = [][]byte{buf[:j.e.Length]}
	}
	r.sent = s.SendChunk(ctx, uint16(j.e.Rank), j.t.id, j.e.Offset, src) == nil
	return r
}

func down(s transport.Session) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

// transmitted counts a chunk and tells its transfer.
func (d *Daemon) transmitted(s transport.Session, j chunkJob, r transmission) {
	t, peer := j.t, s.Peer()
	if r.sent {
		d.metrics.moved("sent", peer, string(s.Encryption()), int(j.e.Length))
	}
	if r.converted > 0 {
		d.metrics.convertedBytes.WithLabelValues(peer).Add(float64(j.e.Length))
		d.metrics.convertSeconds.WithLabelValues(peer).Add(r.converted.Seconds())
	}
	if r.sent && r.count.Changed() > 0 {
		t.changed = t.changed.Add(r.count)
		d.metrics.changedValues.WithLabelValues(peer, "clipped").Add(float64(r.count.Clipped))
		d.metrics.changedValues.WithLabelValues(peer, "rounded").Add(float64(r.count.Rounded))
	}
	if r.end != nil {
		if r.end.Code == codeInexact && !t.m.State().Terminal() {
			d.metrics.inexact.WithLabelValues(peer).Inc()
		}
		_ = d.stepSend(t, *r.end)
	}
	_ = d.stepSend(t, sentEvent(j.e, !r.sent))
}
