package conformance

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// Engines is what a target needs for transfers: two engines of one rank on its
// node, registered and not connected, each in a pair with engine Far of node
// ClientNode.
type Engines struct {
	Socket          string // the engine socket, which lets this process in
	Prefill, Decode string
	Far             string
	Fingerprint     kvcache.Fingerprint // of all three
	Tokens          int                 // of a prompt whose payload is more than Decode's limit of bytes in flight
}

// engine is an engine on the target's node.
type engine struct {
	sched *enginesock.SchedulerClient
	work  *enginesock.WorkerClient
}

func (g *Target) engine(t *testing.T, name string) *engine {
	t.Helper()
	h := enginesock.Hello{Engine: name, Generation: newID(t).String(), Session: enginesock.Scheduler, World: 1, Fingerprint: g.Engines.Fingerprint}
	e := &engine{sched: enginesock.NewScheduler(enginesock.Identity{Path: g.Engines.Socket, Hello: h}, nil, nil)}
	h.Session = enginesock.Worker
	e.work = enginesock.NewWorker(enginesock.Identity{Path: g.Engines.Socket, Hello: h}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { e.sched.Run(ctx) })
	wg.Go(func() { e.work.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	g.until(t, "session of engine "+name, func() bool { return e.sched.State() == nil && e.work.State() == nil })
	return e
}

// until waits for what the engine socket says, which no frame of ours tells.
func (g *Target) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(g.patience()); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// prompt is what a transfer is about.
type prompt struct {
	id      wire.ID
	hash    [32]byte
	payload []byte
}

func (g *Target) prompt(t *testing.T) prompt {
	t.Helper()
	p, err := g.Engines.Fingerprint.PayloadFor(g.Engines.Tokens)
	if err != nil {
		t.Fatal(err)
	}
	x := prompt{id: newID(t), payload: make([]byte, p.Bytes)}
	copy(x.hash[:], bytes.Repeat(x.id[:], 2))
	for i := range x.payload {
		x.payload[i] = x.id[i%16] ^ byte(i>>4) ^ byte(i>>12)
	}
	return x
}

// peer is a session with one stream that has announced engine Far, with the
// target's fingerprint.
func (g *Target) peer(t *testing.T) (*client, *stream) {
	t.Helper()
	return g.peerOf(t, g.Engines.Fingerprint)
}

func (g *Target) peerOf(t *testing.T, fp kvcache.Fingerprint) (*client, *stream) {
	t.Helper()
	s := g.session(t, 1)
	st := s.open(0)
	b, err := json.Marshal(fp)
	if err != nil {
		t.Fatal(err)
	}
	far := wire.Engine{Name: g.Engines.Far, Generation: newID(t).String(), Ranks: uint16(fp.Ranks.Tensor), FingerprintJSON: string(b)}
	if _, err := hex.Decode(far.FingerprintHash[:], []byte(fp.Hash())); err != nil {
		t.Fatal(err)
	}
	s.send((&wire.Engines{Engines: []wire.Engine{far}}).Append(nil))
	s.alive()
	return s, st
}

func transfers(t *testing.T, g *Target) {
	t.Run("to the target", func(t *testing.T) { toTarget(t, g) })
	t.Run("from the target", func(t *testing.T) { fromTarget(t, g) })
	t.Run("from the target, to two ranks", func(t *testing.T) { toTwoRanks(t, g) })
	for name, offset := range map[string]func(gr *wire.Grant) int64{
		"a chunk beyond the credit":         func(gr *wire.Grant) int64 { return gr.Ranges[0].Offset + gr.Credit },
		"a chunk outside the granted range": func(gr *wire.Grant) int64 { return gr.Ranges[0].Offset - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			e := g.engine(t, g.Engines.Decode)
			s, st := g.peer(t)
			p := g.prompt(t)
			gr := s.granted(e, p, g.Engines.Fingerprint.Storage.BlockSize)
			st.write(st.seal(wire.ChunkHeader{Kind: wire.KindKV, ID: p.id, Offset: offset(gr)}, []byte("x")))
			s.ends(wire.CodeProtocol)
		})
	}
	t.Run("a CLAIM that cannot be met", func(t *testing.T) {
		s, _ := g.peer(t)
		for _, c := range []struct {
			source, claimant string
			code             wire.Code
		}{{"nobody", g.Engines.Far, wire.CodeUnknownEngine}, {g.Engines.Prefill, "nobody", wire.CodeNotPaired}} {
			id := newID(t)
			s.send((&wire.Claim{ID: id, SourceEngine: c.source, ClaimantEngine: c.claimant, LifetimeMS: 60_000}).Append(nil))
			s.await("ABORT "+c.code.String(), func(m wire.Message) bool { a, ok := m.(*wire.Abort); return ok && a.ID == id && a.Code == c.code })
		}
		s.alive()
		s.bye()
	})
	t.Run("ABORT ends it", func(t *testing.T) {
		e := g.engine(t, g.Engines.Decode)
		s, _ := g.peer(t)
		p := g.prompt(t)
		s.granted(e, p, 0)
		for range 2 {
			s.send((&wire.Abort{ID: p.id, Code: wire.CodeWithdrawn, Reason: "the check says so"}).Append(nil))
		}
		g.until(t, "a failed verdict", func() bool {
			v, _ := e.sched.Poll(p.id.String())
			return v.Verdict == enginesock.Failed && v.Code == enginesock.FailWithdrawn
		})
		s.alive()
		s.bye()
	})
}

// granted claims at the target's decode engine and goes as far as GRANT.
func (c *client) granted(e *engine, p prompt, from int) (gr *wire.Grant) {
	c.t.Helper()
	n := c.g.Engines
	e.sched.Claim(enginesock.Claim{ID: p.id.String(), Tokens: n.Tokens, TokenHash: hex.EncodeToString(p.hash[:]), FromToken: from,
		Source: enginesock.Endpoint{Node: c.g.ClientNode, Engine: n.Far}})
	c.await("CLAIM", func(m wire.Message) bool {
		x, ok := m.(*wire.Claim)
		return ok && x.ID == p.id && x.SourceEngine == n.Far && x.ClaimantEngine == n.Decode
	})
	c.send((&wire.Offer{ID: p.id, SourceEngine: n.Far, TargetEngine: n.Decode, Tokens: uint32(n.Tokens), TokenHash: p.hash, LifetimeMS: 60_000}).Append(nil))
	c.await("GRANT", func(m wire.Message) (ok bool) { gr, ok = m.(*wire.Grant); return ok && gr.ID == p.id })
	want := int64(len(p.payload))
	if from > 0 && len(gr.Ranges) > 0 {
		want -= gr.Ranges[0].Offset
	}
	if len(gr.Ranges) != 1 || gr.Rank != 0 || gr.Ranges[0].Length != want || (gr.Ranges[0].Offset > 0) != (from > 0) || gr.Credit <= 0 || gr.Credit >= want {
		c.t.Fatalf("GRANT %+v of a payload of %d bytes", gr, len(p.payload))
	}
	return gr
}

func toTarget(t *testing.T, g *Target) {
	e := g.engine(t, g.Engines.Decode)
	s, st := g.peer(t)
	p := g.prompt(t)
	credit := s.granted(e, p, 0).Credit
	for sent := int64(0); sent < int64(len(p.payload)); {
		for sent == credit {
			s.await("CREDIT", func(m wire.Message) bool {
				x, ok := m.(*wire.Credit)
				if ok && x.ID == p.id {
					credit = max(credit, x.Credit)
				}
				return ok && x.ID == p.id
			})
		}
		end := min(sent+wire.MaxChunk, credit)
		st.write(st.seal(wire.ChunkHeader{Kind: wire.KindKV, ID: p.id, Offset: sent}, p.payload[sent:end]))
		sent = end
	}
	var v enginesock.ClaimState
	var instance string
	g.until(t, "a ready verdict", func() bool { v, instance = e.sched.Poll(p.id.String()); return v.Verdict == enginesock.Ready })
	var got []byte
	if err := e.work.Arena(instance, func(mem []byte) error {
		for _, x := range v.Extents[0] {
			got = append(got, mem[x.Offset:x.Offset+x.Length]...)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, p.payload) {
		t.Error("other bytes arrived than were sent")
	}
	if err := e.work.Loaded(p.id.String(), true); err != nil {
		t.Fatal(err)
	}
	s.await("COMMIT", func(m wire.Message) bool { x, ok := m.(*wire.Commit); return ok && x.ID == p.id })
	s.bye()
}

// storeAndOffer has the prefill engine store the prompt's KV and offer it.
func (g *Target) storeAndOffer(t *testing.T, e *engine, p prompt) {
	t.Helper()
	id := p.id.String()
	e.sched.Reserve(id, g.Engines.Tokens, nil)
	var sending enginesock.Sending
	g.until(t, "pages", func() bool { sending, _ = e.sched.Sending(id); return sending.Extents != nil })
	if err := e.work.Arena(sending.Instance, func(mem []byte) error {
		rest := p.payload
		for _, x := range sending.Extents[0] {
			rest = rest[copy(mem[x.Offset:x.Offset+x.Length], rest):]
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	e.work.Stored(id, []kvcache.Range{{Length: int64(len(p.payload))}})
	e.sched.Offer(id, g.Engines.Tokens, hex.EncodeToString(p.hash[:]))
}

// committed waits until the prefill engine knows that its prompt was committed.
func (g *Target) committed(t *testing.T, e *engine, p prompt) {
	t.Helper()
	var sending enginesock.Sending
	g.until(t, "the end", func() bool { sending, _ = e.sched.Sending(p.id.String()); return sending.Ended != nil })
	if sending.Ended.Outcome != enginesock.Committed {
		t.Errorf("the transfer ended as %+v", sending.Ended)
	}
}

func fromTarget(t *testing.T, g *Target) {
	e := g.engine(t, g.Engines.Prefill)
	s, st := g.peer(t)
	p := g.prompt(t)
	// A claim may come before its offer.
	s.send((&wire.Claim{ID: p.id, SourceEngine: g.Engines.Prefill, ClaimantEngine: g.Engines.Far, LifetimeMS: 60_000}).Append(nil))
	s.alive()
	g.storeAndOffer(t, e, p)
	s.await("OFFER", func(m wire.Message) bool {
		x, ok := m.(*wire.Offer)
		return ok && x.ID == p.id && x.SourceEngine == g.Engines.Prefill && int(x.Tokens) == g.Engines.Tokens && x.TokenHash == p.hash
	})
	// Two granted ranges; the credit ends in the second.
	size := int64(len(p.payload))
	ranges := []wire.Range{{Offset: 100, Length: 1000}, {Offset: 5000, Length: size - 5000}}
	s.send((&wire.Grant{ID: p.id, Ranges: ranges, Credit: 3000}).Append(nil))
	st.receive(p, 3000, func(off int64) bool { return off >= 100 && off < 1100 || off >= 5000 && off < 7000 })
	s.send((&wire.Credit{ID: p.id, Credit: size - 4000}).Append(nil))
	st.receive(p, size-4000-3000, func(off int64) bool { return off >= 7000 })
	s.send((&wire.Commit{ID: p.id}).Append(nil))
	g.committed(t, e, p)
	s.alive()
	s.bye()
}

// receive reads exactly n bytes of KV, all of them at allowed offsets.
func (s *stream) receive(p prompt, n int64, allowed func(off int64) bool) {
	s.c.t.Helper()
	for n > 0 {
		h, plain := s.chunk()
		end := h.Offset + int64(h.Length)
		if n -= int64(h.Length); n < 0 || h.ID != p.id || h.Kind != wire.KindKV || h.Rank != 0 || !allowed(h.Offset) || !allowed(end-1) {
			s.c.t.Fatalf("chunk %+v is not what the grant and its credit allow", h)
		}
		if !bytes.Equal(plain, p.payload[h.Offset:end]) {
			s.c.t.Fatalf("chunk %+v has other bytes than the engine stored", h)
		}
	}
}
