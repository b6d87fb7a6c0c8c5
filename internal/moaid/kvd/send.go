package kvd

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/arena"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache/convert"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// sending is a transfer whose prefill engine is here.
type sending struct {
	id         wire.ID
	replica    *replica
	m          *transfer.Sender
	ranks      []storedRank
	tokens     int
	target     enginesock.Endpoint
	node       string           // of the claimant
	session    transfer.Session // of the claim
	conversion *conversion
	expected   int64 // bytes that a claimant without a prefix of its own needs; until there is one, what is stored
	changed    convert.Count
	over       atomic.Bool // nothing need be converted any more
	encryption string
	began      transfer.Instant
	offered    transfer.Instant
	claimed    transfer.Instant
	granted    transfer.Instant
	ended      transfer.Instant
}

// storedRank is where a rank stores what is its own of the payload.
type storedRank struct {
	own   transfer.Set
	arena *arena.Arena
	lease *arena.Lease
}

// view gives the memory of n payload bytes from off, all of which must be the rank's own.
func (r *storedRank) view(off, n int64) ([][]byte, error) {
	at := int64(0)
	for _, o := range r.own {
		if o.Offset <= off && off-o.Offset <= o.Length-n {
			return r.arena.View(r.lease.Extents(), at+off-o.Offset, n), nil
		}
		at += o.Length
	}
	return nil, fmt.Errorf("payload bytes [%d, +%d) are not this rank's own", off, n)
}

// early is a CLAIM for an id that is not reserved here yet.
type early struct {
	ps    *peerSession
	claim wire.Claim
	until transfer.Instant
}

func (d *Daemon) onReserve(s *session, m *enginesock.Reserve) error {
	r := s.replica
	e := r.engine
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
		case t.replica != r || t.tokens != m.Tokens || t.target != target:
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
	own, err := ownOf(&e.reg.Fingerprint, m.Tokens)
	if err != nil {
		return refused(enginesock.CodeBadRequest, "%v", err)
	}
	sizes, total := make([]int64, len(own)), int64(0)
	for rank, o := range own {
		sizes[rank] = o.Bytes()
		total += sizes[rank]
	}
	if most := slices.Max(sizes); most > e.arenaBytes() {
		return refused(enginesock.CodeBadRequest, "a prompt of %d tokens needs %d bytes of staging memory a rank, the engine has %d", m.Tokens, most, e.arenaBytes())
	}
	leases, ok := r.lease(sizes)
	if !ok {
		r.wantRoom = true
		return refused(enginesock.CodeNoRoom, "no staging pages for %d bytes a rank are free", slices.Max(sizes))
	}
	now := d.own.now()
	t := &sending{id: id, replica: r, tokens: m.Tokens, target: target, expected: total, began: now}
	for rank, l := range leases {
		t.ranks = append(t.ranks, storedRank{own[rank], r.arenas[rank], l})
	}
	t.m = transfer.NewSender(now, transfer.SenderOptions{Tokens: m.Tokens, Own: own, MaxChunk: wire.MaxChunk, Window: sendWindow, Timeouts: d.timeouts})
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

// ownOf gives, by rank, what is its own of the payload of a prompt.
func ownOf(fp *kvcache.Fingerprint, tokens int) ([]transfer.Set, error) {
	p, err := fp.PayloadFor(tokens)
	if err != nil {
		return nil, err
	}
	out := make([]transfer.Set, fp.Ranks.Tensor)
	for rank := range out {
		out[rank] = transfer.SetOf(fp.Own(p, rank)...)
	}
	return out, nil
}

func (d *Daemon) answerReserve(s *session, seq int64, t *sending) {
	ok := &enginesock.OK{Seq: seq, DeadlineMillis: d.timeouts.Reserve.Milliseconds()}
	for _, r := range t.ranks {
		ok.RankRanges = append(ok.RankRanges, r.own)
		ok.Extents = append(ok.Extents, extents(r.lease))
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

// ownSend finds a transfer that the session's replica reserved.
func (d *Daemon) ownSend(s *session, id string) (*sending, error) {
	w, err := wire.ParseID(id)
	if err != nil {
		return nil, refused(enginesock.CodeBadRequest, "%v", err)
	}
	if t := d.sends[w]; t != nil && t.replica == s.replica {
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
	refuse := func(code transfer.Code, why string) {
		d.log.Warn("claim refused", "transfer", m.ID, "peer", peerName(ps.node, m.ClaimantEngine), "code", code, "reason", why)
		d.abortTo(ps, m.ID, code, why)
	}
	c, code, why := d.mayLeave(ps, m)
	if code != "" {
		refuse(code, why)
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
	if t.replica.engine.reg.Name != m.SourceEngine {
		d.abortTo(ps, m.ID, codeUnknownEngine, fmt.Sprintf("engine %s did not reserve it", m.SourceEngine))
		return
	}
	view, expected, err := c.view(d.log, t)
	if err != nil {
		refuse(codeIncompatible, err.Error())
		return
	}
	claimant := peerName(ps.node, m.ClaimantEngine)
	if was := t.m.Claimant(); t.session != ps.num && !t.m.State().Terminal() && (was == "" || was == claimant) {
		t.session, t.conversion, t.expected = ps.num, c, expected
	}
	if err := d.stepSend(t, transfer.PeerClaim{Session: ps.num, Claimant: claimant, Lifetime: m.Lifetime(), View: view}); err != nil {
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

// mayLeave says how a claimant gets what it asks for, or why it may not.
func (d *Daemon) mayLeave(ps *peerSession, m *wire.Claim) (*conversion, transfer.Code, string) {
	e := d.engines[m.SourceEngine]
	if e == nil {
		return nil, codeUnknownEngine, fmt.Sprintf("node %s has no engine %s", d.cfg.Node, m.SourceEngine)
	}
	o, ok := d.options(api.PeerEngine{Node: d.cfg.Node, Engine: m.SourceEngine}, api.PeerEngine{Node: ps.node, Engine: m.ClaimantEngine})
	if !ok {
		return nil, codeNotPaired, fmt.Sprintf("no pair on node %s names %s for prefill and %s for decode", d.cfg.Node, m.SourceEngine, peerName(ps.node, m.ClaimantEngine))
	}
	theirs, ok := ps.known[m.ClaimantEngine]
	if !ok {
		return nil, codeUnknownEngine, fmt.Sprintf("node %s has announced no engine %s", ps.node, m.ClaimantEngine)
	}
	v := d.compat.check(e.format, theirs, o)
	if err := v.Err(); err != nil {
		return nil, codeIncompatible, err.Error()
	}
	c, err := d.converters.get(e.format, theirs)
	if err != nil {
		return nil, codeIncompatible, "no conversion is known: " + err.Error()
	}
	return &conversion{to: theirs, verdict: v, text: v.Conversion(), c: c}, "", ""
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
		m := &wire.Offer{ID: t.id, SourceEngine: t.replica.engine.reg.Name, TargetEngine: t.target.Engine, Tokens: uint32(t.tokens), LifetimeMS: uint32(d.timeouts.Offer.Milliseconds())}
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
		t.over.Store(true)
		t.replica.tell(&enginesock.Released{ID: t.id.String(), Outcome: enginesock.Outcome(e.Outcome), Reason: reason(e)})
		d.metrics.ended("send", e)
		bytes, chunks := t.m.Moved()
		d.log.Info("transfer ended", "transfer", t.id, "direction", "send", "engine", t.replica.engine.reg.Name, "data_rank", t.replica.rank, "peer", t.m.Claimant(),
			"outcome", e.Outcome, "code", e.Code, "reason", e.Detail, "tokens", t.tokens, "bytes", bytes, "chunks", chunks,
			"conversion", t.conversionText(), "values_clipped", t.changed.Clipped, "values_rounded", t.changed.Rounded, "seconds", t.ended.Sub(t.began).Seconds())
	case transfer.FreePages:
		for _, r := range t.ranks {
			r.lease.Release()
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

// maxReason bounds texts that are told to others, in bytes.
const maxReason = 500

// clip bounds text that comes from another program or is made of what does. It stays
// UTF-8, without which a frame would be refused.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxReason {
		return s
	}
	n := maxReason
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// seconds is the time from a to b, 0 while either is unknown.
func seconds(a, b transfer.Instant) float64 {
	if a == 0 || b == 0 || b < a {
		return 0
	}
	return time.Duration(b - a).Seconds()
}
