package kvd

import (
	"encoding/hex"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
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
	known map[string]format // of announced engines, by name
}

func (d *Daemon) learn(ps *peerSession, list []wire.Engine) {
	ps.known = map[string]format{}
	for i, g := range list {
		if i >= maxEngines {
			d.log.Warn("a peer announced more engines than a node has", "peer", ps.node, "engines", len(list))
			break
		}
		fp, err := kvcache.ParseFingerprint([]byte(g.FingerprintJSON))
		f := formatOf(fp)
		if err != nil || !validName(g.Name) || f.hash != hex.EncodeToString(g.FingerprintHash[:]) || int(g.Ranks) != fp.Ranks.Tensor {
			d.log.Warn("a peer announced an engine that cannot be used", "peer", ps.node, "engine", clip(g.Name), "error", err)
			continue
		}
		ps.known[g.Name] = f
	}
	for name, e := range d.engines {
		c := d.compatibilityOf(e)
		for _, why := range c.incompatible {
			d.log.Warn("engines of a pair do not fit", "engine", name, "reason", why)
		}
		for _, v := range c.conversions {
			d.log.Debug("engines of a pair fit", "engine", name, "prefill", v.Prefill, "decode", v.Decode, "class", v.Class, "conversion", v.Text)
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
	if l := d.landings.get(h.ID); l != nil {
		if err == nil {
			l.spread(s, h)
		}
		if l.drop(h) {
			d.landings.remove(h.ID)
		}
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
