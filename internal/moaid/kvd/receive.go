package kvd

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// receiving is a transfer whose decode engine is here.
type receiving struct {
	id         wire.ID
	replica    *replica
	m          *transfer.Receiver
	source     enginesock.Endpoint
	land       *landing
	pieces     []piece // every lease, over all ranks
	want       transfer.Set
	waits      bool                    // for pages
	holds      []chan transfer.Verdict // requests that wait
	requests   int                     // held requests that wait or were forwarded and run
	encryption string
	promised   bool // the connector was told ready
	answering  bool // a claim of the connector is being answered: the answer tells what an event would
	untold     bool // and there was something to tell
	began      transfer.Instant
	offered    transfer.Instant
	ready      transfer.Instant
	ended      transfer.Instant
}

// claimFor finds or begins the receiving side of an id.
func (d *Daemon) claimFor(rep *replica, id wire.ID, source enginesock.Endpoint, c *transfer.Claim) (*receiving, error) {
	e := rep.engine
	if t := d.recvs[id]; t != nil {
		if t.replica.engine != e || t.source != source {
			return nil, refused(enginesock.CodeConflict, "this id was claimed by another engine or from another source")
		}
		return t, nil
	}
	if e.draining {
		return nil, refused(enginesock.CodeDraining, "engine %s is draining and takes no new transfers", e.reg.Name)
	}
	if e.recvs >= maxTransfers {
		return nil, refused(enginesock.CodeTooMany, "the engine has %d transfers", e.recvs)
	}
	now := d.own.now()
	fp := e.reg.Fingerprint
	t := &receiving{id: id, replica: rep, source: source, began: now, land: &landing{ranks: make([]landingRank, e.ranks())}}
	need := func(tokens, from int) ([]kvcache.Range, error) {
		p, err := fp.PayloadFor(tokens)
		if err != nil {
			return nil, err
		}
		return fp.Needed(p, from), nil
	}
	own := func(tokens int) ([]transfer.Set, error) { return ownOf(&fp, tokens) }
	t.answering = c != nil
	t.m = transfer.NewReceiver(now, transfer.ReceiverOptions{Ranks: e.ranks(), Need: need, Own: own, Timeouts: d.timeouts}, c)
	d.recvs[id] = t
	d.order = append(d.order, t)
	e.recvs++
	switch why, cancelled := d.cancelled[id]; {
	case cancelled:
		_ = d.stepRecv(t, transfer.Fail{Code: transfer.CodeCancelled, Detail: why.detail})
	case !d.paired(source.Node, source.Engine, d.cfg.Node, e.reg.Name):
		code, why := codeNotPaired, "no pair on this node names "+peerName(source.Node, source.Engine)+" for prefill and "+e.reg.Name+" for decode"
		if !d.linked(source.Node) {
			code, why = codeUnknownSource, "this node has no link to node "+source.Node
		}
		_ = d.stepRecv(t, transfer.Fail{Code: code, Detail: why})
	case !d.linked(source.Node):
		_ = d.stepRecv(t, transfer.Fail{Code: codeUnknownSource, Detail: "this node has no link to node " + source.Node})
	default:
		if ps := d.peers[source.Node]; ps != nil {
			_ = d.stepRecv(t, transfer.PeerUp{Session: ps.num, Instance: transfer.Instance(ps.s.Instance())})
		}
	}
	return t, nil
}

func (d *Daemon) onClaim(s *session, m *enginesock.Claim) error {
	id, err := wire.ParseID(m.ID)
	if err != nil {
		return refused(enginesock.CodeBadRequest, "%v", err)
	}
	if !validName(m.Source.Node) || !validName(m.Source.Engine) {
		return refused(enginesock.CodeBadRequest, "source names no engine of a node")
	}
	c := transfer.Claim{Tokens: m.Tokens, Hash: m.TokenHash, From: m.FromToken}
	known := d.recvs[id] != nil
	t, err := d.claimFor(s.replica, id, m.Source, &c)
	if err != nil {
		return err
	}
	if t.replica != s.replica {
		return d.claimedElsewhere(s, m.Seq, t)
	}
	if known {
		t.answering = true
		err = d.stepRecv(t, c)
	}
	t.answering = false
	if err != nil {
		if t.untold {
			d.tellVerdict(t)
		}
		t.untold = false
		return err
	}
	t.untold = false
	t.promised = t.m.Verdict().Ready
	s.send(&enginesock.OK{Seq: m.Seq, ClaimState: t.claimState()}, nil)
	return nil
}

// claimedElsewhere answers a claim of an id that another replica of the engine
// has. Pages are a replica's own: if the daemon chose the other for a request that
// the engine then gave to this one, nobody will load, and both are told so.
func (d *Daemon) claimedElsewhere(s *session, seq int64, t *receiving) error {
	if t.m.HasConnector() {
		return refused(enginesock.CodeConflict, "data-parallel rank %d has claimed this id", t.replica.rank)
	}
	_ = d.stepRecv(t, transfer.Cancel{Code: transfer.CodeCancelled,
		Detail: fmt.Sprintf("the KV was fetched for data-parallel rank %d, and rank %d claimed it: pass the header %s on", t.replica.rank, s.replica.rank, headerDataRank)})
	s.send(&enginesock.OK{Seq: seq, ClaimState: t.claimState()}, nil)
	return nil
}

func (d *Daemon) ownRecv(s *session, id string) (*receiving, error) {
	w, err := wire.ParseID(id)
	if err != nil {
		return nil, refused(enginesock.CodeBadRequest, "%v", err)
	}
	if t := d.recvs[w]; t != nil && t.replica == s.replica && t.m.HasConnector() {
		return t, nil
	}
	return nil, refused(enginesock.CodeUnknownID, "this engine claimed no id %s", id)
}

func (d *Daemon) onRelease(s *session, m *enginesock.Release) error {
	t, err := d.ownRecv(s, m.ID)
	if err != nil {
		return err
	}
	if err := d.stepRecv(t, transfer.Release{Detail: clip(m.Reason)}); err != nil {
		return err
	}
	s.ok(m.Seq)
	return nil
}

func (d *Daemon) onLoaded(s *session, m *enginesock.Loaded) error {
	t, err := d.ownRecv(s, m.ID)
	if err != nil {
		return err
	}
	if err := d.stepRecv(t, transfer.Loaded{Rank: s.rank, OK: m.OK}); err != nil {
		var r *transfer.Refused
		if errors.As(err, &r) && r.Code == string(enginesock.CodeDuplicate) {
			d.metrics.duplicateReports.Inc()
		}
		return err
	}
	s.ok(m.Seq)
	return nil
}

// stepRecv drives a receiver and carries out its effects.
func (d *Daemon) stepRecv(t *receiving, ev transfer.Event) error {
	was := t.m.State()
	effects, err := t.m.Step(d.own.now(), ev)
	for _, e := range effects {
		d.recvEffect(t, e)
	}
	if was != t.m.State() || len(effects) > 0 {
		d.wantPacing = true
	}
	return err
}

func (d *Daemon) recvEffect(t *receiving, e transfer.Effect) {
	switch e := e.(type) {
	case transfer.SendClaim:
		d.toPeer(e.Session, &wire.Claim{ID: t.id, SourceEngine: t.source.Engine, ClaimantEngine: t.replica.engine.reg.Name, LifetimeMS: uint32(d.timeouts.Claim.Milliseconds())})
	case transfer.LeasePages:
		t.want, t.waits = e.Ranges, true
		d.leaseFor(t)
	case transfer.SendGrant:
		ps := d.sessions[e.Session]
		if ps == nil {
			return
		}
		t.land.grant(ps.s, e.Rank, e.Ranges, e.Credit)
		m := &wire.Grant{ID: t.id, Rank: uint16(e.Rank), Credit: e.Credit}
		for _, r := range e.Ranges {
			m.Ranges = append(m.Ranges, wire.Range(r))
		}
		d.toPeer(e.Session, m)
	case transfer.SendCredit:
		t.land.raise(e.Rank, e.Credit)
		d.toPeer(e.Session, &wire.Credit{ID: t.id, Rank: uint16(e.Rank), Credit: e.Credit})
	case transfer.SendCommit:
		d.toPeer(e.Session, &wire.Commit{ID: t.id})
	case transfer.SendAbort:
		d.toPeer(e.Session, &wire.Abort{ID: t.id, Code: wireCode(e.Code), Reason: clip(e.Detail)})
	case transfer.Violation:
		d.violation(e, t.id)
	case transfer.ReturnBudget:
		t.replica.engine.budget.Return(e.Bytes)
	case transfer.VerdictReached:
		d.verdict(t, e.Verdict)
	case transfer.Ended:
		d.recvEnded(t, e)
	case transfer.FreePages:
		if t.land.shut() {
			d.landings.remove(t.id)
		}
		for _, p := range t.pieces {
			p.lease.Release()
		}
	}
}

// leaseFor takes pages for what a transfer wants, each range apart: a claim may
// be extended later by ranges between those that are there.
func (d *Daemon) leaseFor(t *receiving) {
	if !t.waits || t.m.State().Terminal() {
		return
	}
	rep := t.replica
	e := rep.engine
	if n := t.want.Bytes(); n > e.arenaBytes() {
		t.waits = false
		why := fmt.Sprintf("the prompt needs %d bytes of staging memory a rank, engine %s has %d", n, e.reg.Name, e.arenaBytes())
		d.later(func() { _ = d.stepRecv(t, transfer.Fail{Code: transfer.CodeNoRoom, Detail: why}) })
		return
	}
	got := make([][]piece, e.ranks())
	count := len(t.want) + len(t.pieces)/e.ranks() // ranges of the verdict
	for _, p := range t.pieces {
		count += len(p.lease.Extents())
	}
	giveUp := func() {
		for _, ps := range got {
			for _, p := range ps {
				p.lease.Undo()
			}
		}
	}
	for _, r := range t.want {
		leases, ok := rep.lease(slices.Repeat([]int64{r.Length}, rep.ranks()))
		for rank, l := range leases {
			got[rank] = append(got[rank], piece{r, l})
			count += len(l.Extents())
		}
		if !ok || count > maxExtents { // the verdict must fit a packet
			giveUp()
			return // roomMade tries again, the machine's deadline ends it
		}
	}
	t.waits = false
	for rank, ps := range got {
		t.pieces = append(t.pieces, ps...)
		t.land.add(rank, rep.arenas[rank], ps)
	}
	if p, err := e.reg.Fingerprint.PayloadFor(t.m.Tokens()); err == nil { // the machine has asked the same
		t.land.share(alikes(&e.reg.Fingerprint, p))
	}
	d.landings.put(t.id, t.land)
	d.later(func() { _ = d.stepRecv(t, transfer.Leased{OK: true}) })
}

// retryLeases lets transfers that wait for pages try again, oldest first.
func (d *Daemon) retryLeases(r *replica) {
	for _, t := range d.order {
		if t.replica == r && t.waits {
			d.leaseFor(t)
			if t.waits {
				return // no overtaking: a large transfer must not starve
			}
		}
	}
}

// pace divides the ingest budgets, oldest claim first.
func (d *Daemon) pace() {
	now := int64(d.own.now())
	for _, t := range d.order {
		// One transfer never has all of the budget: its bytes may not be computed
		// yet, and others' are.
		limit := ingestLimit(t.replica.engine.reg)
		w := min(t.m.Wanted(), max(limit/4, min(limit, minShare))-t.m.Given())
		if w > 0 {
			if n := t.replica.engine.budget.Give(now, w); n > 0 {
				_ = d.stepRecv(t, transfer.Credit{Bytes: n})
			}
		}
	}
}

func (d *Daemon) recvEnded(t *receiving, e transfer.Ended) {
	t.ended = d.own.now()
	t.waits = false
	switch {
	case !t.m.HasConnector():
	case e.Outcome == transfer.Committed, e.Code == transfer.CodeLoadFailed, e.Code == transfer.CodeNotNeeded:
		t.replica.tell(&enginesock.Closed{ID: t.id.String(), Outcome: enginesock.Outcome(e.Outcome)})
	case t.promised: // ready was said, and does not hold any more
		d.tellVerdict(t)
	}
	d.metrics.ended("receive", e)
	if e.Outcome == transfer.Committed {
		d.metrics.stage("load", seconds(t.ready, t.ended))
	}
	bytes, chunks := t.m.Moved()
	d.log.Info("transfer ended", "transfer", t.id, "direction", "receive", "engine", t.replica.engine.reg.Name, "data_rank", t.replica.rank, "peer", peerName(t.source.Node, t.source.Engine),
		"outcome", e.Outcome, "code", e.Code, "reason", e.Detail, "tokens", t.m.Tokens(), "from_token", t.m.From(), "bytes", bytes, "expected", t.m.Expected(),
		"chunks", chunks, "encryption", t.encryption, "seconds", seconds(t.began, t.ended))
}

// offeredBy handles a peer's OFFER. One without a claim here is dropped: the
// claim will be answered with it again.
func (d *Daemon) offeredBy(ps *peerSession, m *wire.Offer) {
	t := d.recvs[m.ID]
	if t == nil || t.source.Node != ps.node || t.source.Engine != m.SourceEngine {
		return
	}
	if m.Tokens < 1 || m.Tokens > kvcache.MaxTokens {
		ps.s.Close(wire.CodeProtocol, "OFFER of an impossible number of tokens")
		return
	}
	if !t.m.State().Terminal() {
		theirs, ok := ps.known[m.SourceEngine]
		if !ok {
			_ = d.stepRecv(t, transfer.Fail{Code: codeUnknownSource, Detail: "node " + ps.node + " has announced no engine " + m.SourceEngine})
			return
		}
		o, _ := d.options(api.PeerEngine{Node: ps.node, Engine: m.SourceEngine}, api.PeerEngine{Node: d.cfg.Node, Engine: t.replica.engine.reg.Name})
		if err := d.compat.check(theirs, t.replica.engine.format, o).Err(); err != nil {
			_ = d.stepRecv(t, transfer.Fail{Code: codeIncompatible, Detail: err.Error()})
			return
		}
	}
	if t.offered == 0 {
		t.offered = d.own.now()
		d.metrics.stage("offer", seconds(t.began, t.offered))
	}
	t.encryption = string(ps.s.Encryption())
	_ = d.stepRecv(t, transfer.PeerOffer{Session: ps.num, Tokens: int(m.Tokens), Hash: hex.EncodeToString(m.TokenHash[:])})
}
