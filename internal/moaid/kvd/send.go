package kvd

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/arena"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// sending is a transfer whose prefill engine is here.
type sending struct {
	id         wire.ID
	engine     *engine
	m          *transfer.Sender
	leases     []*arena.Lease // a rank
	payload    int64          // bytes of a rank
	tokens     int
	target     enginesock.Endpoint
	node       string // of the claimant
	encryption string
	began      transfer.Instant
	offered    transfer.Instant
	claimed    transfer.Instant
	granted    transfer.Instant
	ended      transfer.Instant
}

// early is a CLAIM for an id that is not reserved here yet.
type early struct {
	ps    *peerSession
	claim wire.Claim
	until transfer.Instant
}

func (d *Daemon) onReserve(s *session, m *enginesock.Reserve) error {
	e := s.engine
	id, err := wire.ParseID(m.ID)
	if err != nil {
		return refused(enginesock.CodeBadRequest, "%v", err)
	}
	var target enginesock.Endpoint
	if m.Target != nil {
		target = *m.Target
	}
	if t := d.sends[id]; t != nil {
		switch {
		case t.engine != e || t.tokens != m.Tokens || t.target != target:
			return refused(enginesock.CodeConflict, "this id was reserved with other content")
		case t.m.State().Terminal():
			return refused(enginesock.CodeConflict, "this id was reserved before and has ended: %s", t.m.End().Outcome)
		}
		d.answerReserve(s, m.Seq, t)
		return nil
	}
	if e.sends >= maxTransfers {
		return refused(enginesock.CodeTooMany, "the engine has %d transfers", e.sends)
	}
	p, err := e.reg.Fingerprint.PayloadFor(m.Tokens)
	if err != nil {
		return refused(enginesock.CodeBadRequest, "%v", err)
	}
	if p.Bytes > e.arenaBytes() {
		return refused(enginesock.CodeBadRequest, "a prompt of %d tokens needs %d bytes of staging memory a rank, the engine has %d", m.Tokens, p.Bytes, e.arenaBytes())
	}
	leases, ok := e.lease(p.Bytes)
	if !ok {
		e.wantRoom = true
		return refused(enginesock.CodeNoRoom, "no staging pages for %d bytes a rank are free", p.Bytes)
	}
	now := d.own.now()
	t := &sending{id: id, engine: e, leases: leases, payload: p.Bytes, tokens: m.Tokens, target: target, began: now}
	t.m = transfer.NewSender(now, transfer.SenderOptions{Tokens: m.Tokens, Ranks: e.ranks(), Bytes: p.Bytes, MaxChunk: wire.MaxChunk, Window: sendWindow, Timeouts: d.timeouts})
	d.sends[id] = t
	e.sends++
	d.answerReserve(s, m.Seq, t)
	if why, ok := d.cancelled[id]; ok {
		_ = d.stepSend(t, transfer.Cancel{Code: transfer.CodeCancelled, Detail: why.detail})
		return nil
	}
	if c, ok := d.early[id]; ok {
		delete(d.early, id)
		if c.ps.up && now < c.until {
			d.claimed(c.ps, &c.claim)
		}
	}
	return nil
}

func (d *Daemon) answerReserve(s *session, seq int64, t *sending) {
	ok := &enginesock.OK{Seq: seq, DeadlineMillis: d.timeouts.Reserve.Milliseconds()}
	for _, l := range t.leases {
		ok.Extents = append(ok.Extents, extents(l))
	}
	s.send(ok, nil)
}

func extents(l *arena.Lease) []enginesock.Extent {
	out := make([]enginesock.Extent, 0, len(l.Extents()))
	for _, e := range l.Extents() {
		out = append(out, enginesock.Extent(e))
	}
	return out
}

// ownSend finds a transfer that the session's engine reserved.
func (d *Daemon) ownSend(s *session, id string) (*sending, error) {
	w, err := wire.ParseID(id)
	if err != nil {
		return nil, refused(enginesock.CodeBadRequest, "%v", err)
	}
	if t := d.sends[w]; t != nil && t.engine == s.engine {
		return t, nil
	}
	return nil, refused(enginesock.CodeUnknownID, "this engine reserved no id %s", id)
}

func (d *Daemon) onOffer(s *session, m *enginesock.Offer) error {
	t, err := d.ownSend(s, m.ID)
	if err != nil {
		return err
	}
	if err := d.stepSend(t, transfer.Offer{Tokens: m.Tokens, Hash: m.TokenHash}); err != nil {
		return err
	}
	if t.offered == 0 {
		t.offered = d.own.now()
	}
	s.ok(m.Seq)
	return nil
}

func (d *Daemon) onWithdraw(s *session, m *enginesock.Withdraw) error {
	t, err := d.ownSend(s, m.ID)
	if err != nil {
		return err
	}
	if err := d.stepSend(t, transfer.Withdraw{Detail: clip(m.Reason)}); err != nil {
		return err
	}
	s.ok(m.Seq)
	return nil
}

func (d *Daemon) onStored(s *session, m *enginesock.Stored) error {
	t, err := d.ownSend(s, m.ID)
	if err != nil {
		return err
	}
	if err := d.stepSend(t, transfer.Stored{Rank: s.rank, Ranges: m.Ranges}); err != nil {
		return err
	}
	s.ok(m.Seq)
	return nil
}

// claimed handles a peer's CLAIM.
func (d *Daemon) claimed(ps *peerSession, m *wire.Claim) {
	if !validName(m.SourceEngine) || !validName(m.ClaimantEngine) {
		d.abortTo(ps, m.ID, codeUnknownEngine, "the CLAIM names no engine")
		return
	}
	if code, why := d.mayLeave(ps, m); code != "" {
		d.log.Warn("claim refused", "transfer", m.ID, "peer", peerName(ps.node, m.ClaimantEngine), "code", code, "reason", why)
		d.abortTo(ps, m.ID, code, why)
		return
	}
	t := d.sends[m.ID]
	if t == nil {
		if why, ok := d.cancelled[m.ID]; ok {
			d.abortTo(ps, m.ID, transfer.CodeCancelled, why.detail)
			return
		}
		if c, ok := d.early[m.ID]; ok && c.ps.up && c.ps != ps {
			// Whose id it is will be seen when it is reserved; until then the first
			// counts, or any peer could put itself in another's place.
			d.abortTo(ps, m.ID, transfer.CodeNotOffered, "another node has claimed this id")
			return
		}
		if len(d.early) >= maxEarly || d.earlyOf(ps) >= maxEarlyPeer {
			d.abortTo(ps, m.ID, transfer.CodeNoRoom, "too many claims wait for their offers")
			return
		}
		d.early[m.ID] = early{ps, *m, d.own.now().Add(min(m.Lifetime(), d.timeouts.Claim))}
		return
	}
	if t.engine.reg.Name != m.SourceEngine {
		d.abortTo(ps, m.ID, codeUnknownEngine, fmt.Sprintf("engine %s did not reserve it", m.SourceEngine))
		return
	}
	claimant := peerName(ps.node, m.ClaimantEngine)
	if err := d.stepSend(t, transfer.PeerClaim{Session: ps.num, Claimant: claimant, Lifetime: m.Lifetime()}); err != nil {
		d.abortTo(ps, m.ID, transfer.CodeNotOffered, err.Error())
		return
	}
	t.node, t.encryption = ps.node, string(ps.s.Encryption())
	if t.claimed == 0 {
		t.claimed = d.own.now()
	}
}

// earlyOf counts a peer's claims that wait for their offers.
func (d *Daemon) earlyOf(ps *peerSession) int {
	if len(d.early) < maxEarlyPeer {
		return 0 // it has no more than that
	}
	n := 0
	for _, c := range d.early {
		if c.ps == ps {
			n++
		}
	}
	return n
}

// mayLeave says why a claimant may not have what it asks for.
func (d *Daemon) mayLeave(ps *peerSession, m *wire.Claim) (transfer.Code, string) {
	e := d.engines[m.SourceEngine]
	if e == nil {
		return codeUnknownEngine, fmt.Sprintf("node %s has no engine %s", d.cfg.Node, m.SourceEngine)
	}
	if !d.paired(d.cfg.Node, m.SourceEngine, ps.node, m.ClaimantEngine) {
		return codeNotPaired, fmt.Sprintf("no pair on node %s names %s for prefill and %s for decode", d.cfg.Node, m.SourceEngine, peerName(ps.node, m.ClaimantEngine))
	}
	fp, ok := ps.fingerprint(m.ClaimantEngine)
	if !ok {
		return codeUnknownEngine, fmt.Sprintf("node %s has announced no engine %s", ps.node, m.ClaimantEngine)
	}
	if err := d.compat.check(e.reg.Fingerprint, fp); err != nil {
		return codeIncompatible, err.Error()
	}
	return "", ""
}

// stepSend drives a sender and carries out its effects.
func (d *Daemon) stepSend(t *sending, ev transfer.Event) error {
	effects, err := t.m.Step(d.own.now(), ev)
	for _, e := range effects {
		d.sendEffect(t, e)
	}
	return err
}

func (d *Daemon) sendEffect(t *sending, e transfer.Effect) {
	switch e := e.(type) {
	case transfer.SendOffer:
		m := &wire.Offer{ID: t.id, SourceEngine: t.engine.reg.Name, TargetEngine: t.target.Engine, Tokens: uint32(t.tokens), LifetimeMS: uint32(d.timeouts.Offer.Milliseconds())}
		if b, err := hex.DecodeString(t.m.Offered().Hash); err == nil {
			copy(m.TokenHash[:], b)
		}
		d.toPeer(e.Session, m)
	case transfer.SendAbort:
		d.toPeer(e.Session, &wire.Abort{ID: t.id, Code: wireCode(e.Code), Reason: clip(e.Detail)})
	case transfer.SendChunk:
		if t.granted == 0 {
			t.granted = d.own.now()
		}
		d.sendChunk(t, e)
	case transfer.Violation:
		d.violation(e, t.id)
	case transfer.Ended:
		t.ended = d.own.now()
		t.engine.tell(&enginesock.Released{ID: t.id.String(), Outcome: enginesock.Outcome(e.Outcome), Reason: reason(e)})
		d.metrics.ended("send", e)
		bytes, chunks := t.m.Moved()
		d.log.Info("transfer ended", "transfer", t.id, "direction", "send", "engine", t.engine.reg.Name, "peer", t.m.Claimant(),
			"outcome", e.Outcome, "code", e.Code, "reason", e.Detail, "tokens", t.tokens, "bytes", bytes, "chunks", chunks,
			"seconds", t.ended.Sub(t.began).Seconds())
	case transfer.FreePages:
		for _, l := range t.leases {
			l.Release()
		}
	}
}

func reason(e transfer.Ended) string {
	switch {
	case e.Detail == "":
		return string(e.Code)
	case e.Code == "":
		return e.Detail
	}
	return string(e.Code) + ": " + e.Detail
}

// clip bounds text that comes from another program.
func clip(s string) string {
	if len(s) > 500 {
		return s[:500] + "…"
	}
	return s
}

// seconds is the time from a to b, 0 while either is unknown.
func seconds(a, b transfer.Instant) float64 {
	if a == 0 || b == 0 || b < a {
		return 0
	}
	return time.Duration(b - a).Seconds()
}
