package kvd

import (
	"context"
	"encoding/hex"
	"sync"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/arena"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transport"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// peerSession is a control session that is up. Only the owner touches it, but
// for the queue, which has a lock.
type peerSession struct {
	s     transport.Session
	num   transfer.Session
	node  string
	up    bool
	queue *sendQueue
	known map[string]kvcache.Fingerprint // of announced engines, by name
}

func (ps *peerSession) fingerprint(engine string) (kvcache.Fingerprint, bool) {
	fp, ok := ps.known[engine]
	return fp, ok
}

func (d *Daemon) learn(ps *peerSession, list []wire.Engine) {
	ps.known = map[string]kvcache.Fingerprint{}
	for i, g := range list {
		if i >= maxEngines {
			d.log.Warn("a peer announced more engines than a node has", "peer", ps.node, "engines", len(list))
			break
		}
		fp, err := kvcache.ParseFingerprint([]byte(g.FingerprintJSON))
		if err != nil || !validName(g.Name) || fp.Hash() != hex.EncodeToString(g.FingerprintHash[:]) {
			d.log.Warn("a peer announced an engine that cannot be used", "peer", ps.node, "engine", clip(g.Name), "error", err)
			continue
		}
		ps.known[g.Name] = fp
	}
	for name, e := range d.engines {
		for _, why := range d.incompatible(e) {
			d.log.Warn("engines of a pair do not fit", "engine", name, "reason", why)
		}
	}
}

// SessionUp is called by the transport.
func (d *Daemon) SessionUp(s transport.Session) {
	d.own.post(func() {
		d.sessionNum++
		ps := &peerSession{s: s, num: d.sessionNum, node: s.Peer(), up: true}
		ps.queue = newSendQueue(d, s, d.streams(ps.node))
		d.learn(ps, s.Engines())
		d.peers[ps.node], d.sessions[ps.num], d.byTransport[s] = ps, ps, ps
		d.log.Info("peer session up", "peer", ps.node, "session", s.ID(), "encryption", s.Encryption())
		up := transfer.PeerUp{Session: ps.num, Instance: transfer.Instance(s.Instance())}
		d.eachSend(func(t *sending) {
			if t.node == ps.node {
				_ = d.stepSend(t, up)
			}
		})
		d.eachRecv(func(t *receiving) {
			if t.source.Node == ps.node {
				_ = d.stepRecv(t, up)
			}
		})
		if err := s.Send(&wire.Engines{Engines: d.announcement()}); err != nil {
			d.log.Debug("announce engines", "peer", ps.node, "error", err)
		}
	})
}

// SessionDown is called by the transport, last of all calls for a session.
func (d *Daemon) SessionDown(s transport.Session, err error) {
	d.own.post(func() {
		ps := d.byTransport[s]
		if ps == nil {
			return
		}
		ps.up = false
		ps.queue.stop()
		delete(d.byTransport, s)
		delete(d.sessions, ps.num)
		if d.peers[ps.node] == ps {
			delete(d.peers, ps.node)
		}
		d.log.Info("peer session down", "peer", ps.node, "session", s.ID(), "error", err)
		down := transfer.PeerDown{Session: ps.num}
		d.eachSend(func(t *sending) { _ = d.stepSend(t, down) })
		d.eachRecv(func(t *receiving) { _ = d.stepRecv(t, down) })
	})
}

// Message is called by the transport with frames of transfers.
func (d *Daemon) Message(s transport.Session, m wire.Message) {
	d.own.post(func() {
		ps := d.byTransport[s]
		if ps == nil {
			return
		}
		switch m := m.(type) {
		case *wire.Engines:
			d.learn(ps, m.Engines)
		case *wire.Offer:
			d.offeredBy(ps, m)
		case *wire.Claim:
			d.claimed(ps, m)
		case *wire.Grant:
			if t := d.sends[m.ID]; t != nil {
				rs := make([]kvcache.Range, len(m.Ranges))
				for i, r := range m.Ranges {
					rs[i] = kvcache.Range(r)
				}
				_ = d.stepSend(t, transfer.PeerGrant{Session: ps.num, Rank: int(m.Rank), Ranges: rs, Credit: m.Credit})
			}
		case *wire.Credit:
			if t := d.sends[m.ID]; t != nil {
				_ = d.stepSend(t, transfer.PeerCredit{Session: ps.num, Rank: int(m.Rank), Credit: m.Credit})
			}
		case *wire.Commit:
			if t := d.sends[m.ID]; t != nil {
				_ = d.stepSend(t, transfer.PeerCommit{Session: ps.num})
			}
		case *wire.Abort:
			d.abortedBy(ps, m)
		}
	})
}

func (d *Daemon) abortedBy(ps *peerSession, m *wire.Abort) {
	ev := transfer.PeerAbort{Session: ps.num, Code: peerCode(m.Code), Detail: clip(m.Reason)}
	if c, ok := d.early[m.ID]; ok && c.ps == ps {
		delete(d.early, m.ID)
		// Whoever reserves it now would wait for a claim until a deadline. Half of
		// the room stays for cancellations of gateways.
		if len(d.cancelled) < maxEarly/2 {
			d.cancelled[m.ID] = tombstone{ev.Detail, d.own.now().Add(d.timeouts.Claim)}
		}
	}
	if t := d.sends[m.ID]; t != nil && t.node == ps.node {
		_ = d.stepSend(t, ev)
	}
	if t := d.recvs[m.ID]; t != nil && t.source.Node == ps.node {
		_ = d.stepRecv(t, ev)
	}
}

// ChunkTarget is called by the transport's streams.
func (d *Daemon) ChunkTarget(s transport.Session, h wire.ChunkHeader) ([][]byte, bool, error) {
	l := d.landings.get(h.ID)
	if l == nil {
		return nil, false, nil
	}
	dst, ok, err := l.target(s, h)
	if ok {
		dst = divert(dst)
	}
	return dst, ok, err
}

// ChunkDone is called by the transport's streams after ChunkTarget said ok.
func (d *Daemon) ChunkDone(s transport.Session, h wire.ChunkHeader, err error) {
	// ChunkTarget found it, and it is kept while a chunk is being written.
	if l := d.landings.get(h.ID); l != nil && l.drop(h) {
		d.landings.remove(h.ID)
	}
	if err != nil {
		return
	}
	d.own.post(func() {
		ps, t := d.byTransport[s], d.recvs[h.ID]
		if ps == nil {
			return
		}
		d.metrics.moved("received", ps.node, string(s.Encryption()), h.Length)
		if t != nil {
			_ = d.stepRecv(t, transfer.ChunkVerified{Session: ps.num, Rank: int(h.Rank), Offset: h.Offset, Length: int64(h.Length)})
		}
	})
}

func (d *Daemon) toPeer(n transfer.Session, m wire.Message) {
	ps := d.sessions[n]
	if ps == nil {
		return
	}
	if err := ps.s.Send(m); err != nil {
		d.log.Debug("message to peer", "peer", ps.node, "type", wire.TypeName(m.Type()), "error", err)
	}
}

func (d *Daemon) abortTo(ps *peerSession, id wire.ID, code transfer.Code, why string) {
	d.toPeer(ps.num, &wire.Abort{ID: id, Code: wireCode(code), Reason: clip(why)})
}

func (d *Daemon) violation(v transfer.Violation, id wire.ID) {
	if ps := d.sessions[v.Session]; ps != nil {
		d.log.Warn("protocol violation by a peer", "peer", ps.node, "transfer", id, "reason", v.Why)
		ps.s.Close(wire.CodeProtocol, v.Why)
	}
}

// incompatible says why engines of peers that pairs join with e do not fit it.
func (d *Daemon) incompatible(e *engine) []string {
	var out []string
	here := api.PeerEngine{Node: d.cfg.Node, Engine: e.reg.Name}
	for _, p := range sortedPairs(d.pairs) {
		for _, side := range []struct{ us, them []api.PeerEngine }{{p.Prefill, p.Decode}, {p.Decode, p.Prefill}} {
			if !contains(side.us, here) {
				continue
			}
			for _, o := range side.them {
				ps := d.peers[o.Node]
				if ps == nil {
					continue
				}
				fp, ok := ps.known[o.Engine]
				if !ok {
					continue
				}
				prefill, decode := e.reg.Fingerprint, fp
				if contains(p.Decode, here) {
					prefill, decode = fp, e.reg.Fingerprint
				}
				if err := d.compat.check(prefill, decode); err != nil {
					out = append(out, peerName(o.Node, o.Engine)+": "+err.Error())
				}
			}
		}
	}
	return out
}

// compatCache remembers verdicts: a check is made for every claim.
type compatCache struct{ m map[[2]string]error }

func (c *compatCache) check(prefill, decode kvcache.Fingerprint) error {
	key := [2]string{prefill.Hash(), decode.Hash()}
	if err, ok := c.m[key]; ok {
		return err
	}
	if c.m == nil || len(c.m) > 256 {
		c.m = map[[2]string]error{}
	}
	err := kvcompat.Check(prefill, decode, kvcompat.Options{}).Err()
	c.m[key] = err
	return err
}

// sendQueue hands chunks to a session's streams, by as many workers.
type sendQueue struct {
	mu      sync.Mutex
	wake    *sync.Cond
	jobs    []chunkJob
	stopped bool
}

type chunkJob struct {
	t     *sending
	e     transfer.SendChunk
	lease *arena.Lease
	arena *arena.Arena
}

func newSendQueue(d *Daemon, s transport.Session, workers int) *sendQueue {
	q := &sendQueue{}
	q.wake = sync.NewCond(&q.mu)
	for range workers {
		d.background(func() { q.work(d, s) })
	}
	return q
}

// sendChunk queues a chunk whose pages it holds until it was written.
func (d *Daemon) sendChunk(t *sending, e transfer.SendChunk) {
	j := chunkJob{t, e, t.leases[e.Rank], t.engine.arenas[e.Rank]}
	ps := d.sessions[e.Session]
	if ps == nil || j.arena == nil || !j.lease.Hold() || !ps.queue.push(j) {
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
		j.lease.Drop()
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
		src := j.arena.View(j.lease.Extents(), j.e.Offset, j.e.Length)
		err := s.SendChunk(ctx, uint16(j.e.Rank), j.t.id, j.e.Offset, src)
		j.lease.Drop()
		d.own.post(func() {
			if err == nil {
				d.metrics.moved("sent", s.Peer(), string(s.Encryption()), int(j.e.Length))
			}
			_ = d.stepSend(j.t, sentEvent(j.e, err != nil))
		})
	}
}
