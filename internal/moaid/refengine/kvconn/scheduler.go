package kvconn

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/metrics"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/sched"
)

// Config says how a connector behaves.
type Config struct {
	Node   string // of this engine, for daemons that do not say it
	Engine string
	Fail   bool // a failed transfer fails the request instead of computing it here; the registration's word goes first

	// ReserveWait bounds the wait for pages to send from; afterwards the prompt is
	// computed and answered without a transfer.
	ReserveWait time.Duration
	// ClaimWait bounds the wait for KV beyond the daemon's own deadlines.
	ClaimWait time.Duration
	// DownWait bounds the wait for a daemon that is not there.
	DownWait time.Duration
}

// Scheduler is the connector's scheduler part.
type Scheduler struct {
	cfg    Config
	client *enginesock.SchedulerClient
	met    *metrics.Set
	log    *slog.Logger

	sends map[string]*send  // by request
	recvs map[string]*recv  // by request
	open  map[string]string // transfers whose prefill is done and whose end is awaited, by id: the request
	loads []sched.Load      // of the next step
	downs time.Time         // since when there has been no session; zero while there is one
}

type send struct {
	id      string
	since   time.Time
	target  *enginesock.Endpoint
	offered bool
	stored  int  // tokens that workers were told to store the blocks of
	given   bool // up: answered without a transfer
}

// fresh gives the part of tokens [from, to) that workers were not told to store yet.
// What was stored is final: a prompt that is computed again after it was preempted does
// not store it again.
func (s *send) fresh(from, to int) (int, bool) {
	from = max(from, s.stored)
	s.stored = max(s.stored, to)
	return from, from < to
}

type recv struct {
	id     string
	since  time.Time
	began  bool   // loading, or loaded
	loaded bool   // every rank has reported; the daemon needs nothing more
	failed string // reason, once it is known that nothing will be loaded
}

var _ sched.Connector = (*Scheduler)(nil)

// NewScheduler makes a connector over a client that somebody runs.
func NewScheduler(cfg Config, client *enginesock.SchedulerClient, met *metrics.Set, log *slog.Logger) *Scheduler {
	return &Scheduler{cfg: cfg, client: client, met: met, log: log,
		sends: map[string]*send{}, recvs: map[string]*recv{}, open: map[string]string{}}
}

// NewID mints a transfer id.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Arrived reserves pages for a prompt that is to be sent, and claims one that is
// to come.
func (c *Scheduler) Arrived(r *sched.Request, now time.Time) {
	p := r.Params.Transfer
	switch {
	case p == nil:
	case p.DoRemoteDecode:
		s := &send{id: p.TransferID, since: now}
		if s.id == "" {
			s.id = NewID()
		}
		if p.TargetNode != "" || p.TargetEngine != "" {
			s.target = &enginesock.Endpoint{Node: p.TargetNode, Engine: p.TargetEngine}
		}
		c.sends[r.ID] = s
		c.client.Reserve(s.id, len(r.Prompt), s.target)
	case p.DoRemotePrefill:
		v := &recv{id: p.TransferID, since: now}
		c.recvs[r.ID] = v
		if v.id == "" {
			v.failed = "no_transfer_id"
			return
		}
		c.client.Claim(enginesock.Claim{ID: v.id, Tokens: len(r.Prompt), TokenHash: kvcache.TokenHash(r.Prompt),
			Source: enginesock.Endpoint{Node: p.SourceNode, Engine: p.SourceEngine}})
	}
}

// Match answers from what the client has stored.
func (c *Scheduler) Match(r *sched.Request, now time.Time) sched.Match {
	if s := c.sends[r.ID]; s != nil {
		return c.matchSend(s, now)
	}
	v := c.recvs[r.ID]
	if v == nil {
		return sched.Match{}
	}
	if v.failed == "" {
		state, _ := c.client.Poll(v.id)
		switch {
		case state.Verdict == enginesock.Ready:
			return sched.Match{Kind: sched.MatchLoad}
		case state.Verdict == enginesock.Failed:
			v.failed = string(state.Code)
			c.log.Warn("KV will not come", "transfer", v.id, "code", state.Code, "reason", state.Reason)
		case now.Sub(v.since) > c.cfg.ClaimWait:
			v.failed = "timeout"
		case c.down(now) > c.cfg.DownWait:
			v.failed = "daemon_down"
		default:
			return sched.Match{Kind: sched.MatchNotYet}
		}
		c.client.Release(v.id, v.failed)
		c.met.Transfers.WithLabelValues("receive", v.failed).Inc()
	}
	if c.fails() {
		return sched.Match{Kind: sched.MatchFail, Reason: v.failed}
	}
	return sched.Match{Reason: v.failed}
}

// fails says whether a failed transfer fails its request.
func (c *Scheduler) fails() bool {
	switch c.client.Registration().OnTransferFailure {
	case "fail":
		return true
	case "recompute":
		return false
	}
	return c.cfg.Fail
}

func (c *Scheduler) matchSend(s *send, now time.Time) sched.Match {
	if s.given {
		return sched.Match{}
	}
	st, known := c.client.Sending(s.id)
	switch {
	case known && st.Extents != nil && st.Ended == nil:
		return sched.Match{}
	case !known || st.Err != nil || st.Ended != nil || now.Sub(s.since) > c.cfg.ReserveWait || c.down(now) > c.cfg.DownWait:
		c.log.Warn("no pages to send KV from: the prompt is answered without a transfer", "transfer", s.id, "err", st.Err)
		c.giveUp(s, "not_reserved")
		return sched.Match{}
	}
	return sched.Match{Kind: sched.MatchNotYet}
}

func (c *Scheduler) giveUp(s *send, outcome string) {
	s.given = true
	c.client.Withdraw(s.id, outcome)
	c.client.Forget(s.id)
	c.met.Transfers.WithLabelValues("send", outcome).Inc()
}

// down is how long there has been no session.
func (c *Scheduler) down(now time.Time) time.Duration {
	if c.client.State() == nil {
		c.downs = time.Time{}
		return 0
	}
	if c.downs.IsZero() {
		c.downs = now
	}
	return now.Sub(c.downs)
}

// Allocated turns a ready claim into an order to load.
func (c *Scheduler) Allocated(r *sched.Request, blocks [][]int) {
	v := c.recvs[r.ID]
	if v == nil || v.began { // asked twice for one load
		return
	}
	v.began = true
	state, instance := c.client.Poll(v.id)
	l := sched.Load{ID: v.id, Request: r.ID, Instance: instance, Tokens: len(r.Prompt), Ranges: state.Ranges, Extents: state.Extents, Blocks: blocks}
	c.loads = append(c.loads, l)
}

// BuildMeta offers what begins, and orders the copies of this step.
func (c *Scheduler) BuildMeta(scheduled []sched.Scheduled) sched.Meta {
	m := sched.Meta{Loads: c.loads}
	c.loads = nil
	for _, p := range scheduled {
		r := p.Request
		s := c.sends[r.ID]
		if s == nil || s.given || p.From >= len(r.Prompt) {
			continue
		}
		st, known := c.client.Sending(s.id)
		if !known || st.Err != nil || st.Ended != nil || len(st.Extents) == 0 {
			continue
		}
		if !s.offered {
			s.offered = true
			c.client.Offer(s.id, len(r.Prompt), kvcache.TokenHash(r.Prompt))
		}
		to := min(p.To, len(r.Prompt))
		from, some := s.fresh(p.From, to)
		if !some {
			continue
		}
		m.Stores = append(m.Stores, sched.Store{ID: s.id, Instance: st.Instance, Tokens: len(r.Prompt),
			From: from, To: to, Ranges: st.Ranges, Extents: st.Extents, Blocks: p.Blocks})
	}
	c.sweep()
	return m
}

// sweep counts and forgets transfers that have ended after their prefill.
func (c *Scheduler) sweep() {
	for id := range c.open {
		st, known := c.client.Sending(id)
		switch {
		case known && st.Ended == nil && st.Err == nil:
			continue
		case known && st.Ended != nil:
			c.met.Transfers.WithLabelValues("send", string(st.Ended.Outcome)).Inc()
		default:
			c.met.Transfers.WithLabelValues("send", "refused").Inc()
		}
		c.client.Forget(id)
		delete(c.open, id)
	}
}

// Loaded notes how a load ended, of which every rank has reported.
func (c *Scheduler) Loaded(r *sched.Request, ok bool) {
	v := c.recvs[r.ID]
	if v == nil {
		return
	}
	outcome := "committed"
	if !ok {
		outcome, v.failed = "load_failed", "load_failed"
	}
	v.loaded = true
	c.client.Forget(v.id)
	c.met.Transfers.WithLabelValues("receive", outcome).Inc()
}

// Finished gives a sent prompt's parameters, and lets go of whatever an aborted
// request was waiting for.
func (c *Scheduler) Finished(r *sched.Request, aborted bool) *sched.TransferParams {
	if s := c.sends[r.ID]; s != nil {
		delete(c.sends, r.ID)
		return c.finishedSend(r, s, aborted)
	}
	if v := c.recvs[r.ID]; v != nil {
		delete(c.recvs, r.ID)
		if aborted && !v.loaded && v.failed == "" && v.id != "" {
			c.client.Release(v.id, "aborted")
			if !v.began {
				c.met.Transfers.WithLabelValues("receive", "aborted").Inc()
			}
		}
	}
	return nil
}

func (c *Scheduler) finishedSend(r *sched.Request, s *send, aborted bool) *sched.TransferParams {
	if s.given {
		return nil
	}
	if aborted {
		c.client.Withdraw(s.id, "aborted")
		c.open[s.id] = r.ID
		return nil
	}
	c.open[s.id] = r.ID
	st, known := c.client.Sending(s.id)
	if !known || st.Err != nil || (st.Ended != nil && st.Ended.Outcome != enginesock.Committed) {
		return nil
	}
	return &sched.TransferParams{DoRemotePrefill: true, TransferID: s.id, SourceNode: cmp.Or(c.client.Registration().Node, c.cfg.Node), SourceEngine: c.cfg.Engine, RemoteNumTokens: len(r.Prompt)}
}
