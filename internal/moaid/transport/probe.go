package transport

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// probeTimeout bounds a probe whose caller set no deadline.
const probeTimeout = 60 * time.Second

// probes is the session's probe in each direction, at most one.
type probes struct {
	mu sync.Mutex
	// Ours.
	id     wire.ID
	answer chan *wire.ProbeResult // nil while none runs
	// The peer's.
	from     wire.ID
	want     [sha256.Size]byte
	incoming *probeDigests // nil while none runs
}

// probe sends one probe and waits for its result.
func (s *session) probe(ctx context.Context, bytes int64) (ProbeResult, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var id wire.ID
	if _, err := io.ReadFull(rand.Reader, id[:]); err != nil {
		return ProbeResult{}, fmt.Errorf("make a probe id: %w", err)
	}
	answer, ok := s.probes.begin(id)
	if !ok {
		return ProbeResult{}, fmt.Errorf("probe node %s: %w", s.node, ErrProbing)
	}
	defer s.probes.end()

	hash := probeHash(id, bytes)
	if err := s.Send(&wire.Probe{ID: id, Bytes: bytes, Hash: hash}); err != nil {
		return ProbeResult{}, err
	}
	// Chunks travel on other connections and could overtake the PROBE.
	if err := s.sync(ctx); err != nil {
		return ProbeResult{}, err
	}
	began := time.Now()
	if err := s.sendProbe(ctx, id, bytes); err != nil {
		return ProbeResult{}, err
	}
	select {
	case r := <-answer:
		return ProbeResult{OK: r.OK, Reason: r.Reason, Bytes: r.Bytes, Seconds: time.Since(began).Seconds(),
			Encryption: s.Encryption(), Transport: "tcp"}, nil
	case <-s.done:
		return ProbeResult{}, s.err()
	case <-ctx.Done():
		return ProbeResult{}, fmt.Errorf("wait for node %s to check the probe: %w", s.node, context.Cause(ctx))
	}
}

// sync waits until the peer has handled everything that was sent before.
func (s *session) sync(ctx context.Context) error {
	ch := make(chan struct{})
	ping := s.ping.next(time.Now(), ch)
	defer s.ping.forget(ping.Nonce)
	if err := s.Send(ping); err != nil {
		return err
	}
	select {
	case <-ch:
		return nil
	case <-s.done:
		return s.err()
	case <-ctx.Done():
		return fmt.Errorf("wait for node %s to answer a ping: %w", s.node, context.Cause(ctx))
	}
}

// sendProbe sends all chunks, one goroutine a stream.
func (s *session) sendProbe(ctx context.Context, id wire.ID, bytes int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	n := probeChunks(bytes)
	for range min(s.nstreams, n) {
		wg.Go(func() {
			buf := make([]byte, wire.MaxChunk)
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				b := buf[:probeLength(bytes, i)]
				fillProbe(b, id, i)
				h := wire.ChunkHeader{Kind: wire.KindProbe, ID: id, Offset: int64(i) * wire.MaxChunk}
				if err := s.sendChunk(ctx, h, [][]byte{b}); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (p *probes) begin(id wire.ID) (chan *wire.ProbeResult, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answer != nil {
		return nil, false
	}
	p.id, p.answer = id, make(chan *wire.ProbeResult, 1)
	return p.answer, true
}

func (p *probes) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.id, p.answer = wire.ID{}, nil
}

// result takes the peer's answer; one for no probe of ours is ignored, since it
// may be that the caller gave up.
func (p *probes) result(r *wire.ProbeResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answer == nil || r.ID != p.id {
		return
	}
	select {
	case p.answer <- r:
	default:
	}
}

// announce begins the peer's probe, in place of an earlier one. It gives the
// answer if there is nothing to wait for.
func (p *probes) announce(m *wire.Probe) *wire.ProbeResult {
	if m.Bytes < 1 || m.Bytes > wire.MaxProbe {
		return &wire.ProbeResult{ID: m.ID, Reason: fmt.Sprintf("a probe has 1 to %d bytes, not %d", wire.MaxProbe, m.Bytes)}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.from, p.want, p.incoming = m.ID, m.Hash, newProbeDigests(m.Bytes)
	return nil
}

// expected finds the probe and the index of a chunk; nil drops the chunk.
func (p *probes) expected(h wire.ChunkHeader) (*probeDigests, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.incoming == nil || h.ID != p.from {
		return nil, 0, nil
	}
	i, err := p.incoming.index(h)
	return p.incoming, i, err
}

// received takes a checked chunk's digest, and gives the answer with the last.
func (p *probes) received(in *probeDigests, i int, digest [sha256.Size]byte) (*wire.ProbeResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.incoming != in { // replaced meanwhile
		return nil, nil
	}
	complete, err := in.add(i, digest)
	if err != nil || !complete {
		return nil, err
	}
	r := &wire.ProbeResult{ID: p.from, Bytes: in.bytes, OK: in.root() == p.want}
	if !r.OK {
		r.Reason = "the content that arrived is not what was announced"
	}
	p.incoming = nil
	return r, nil
}

// receiveProbe hashes a probe's chunk instead of delivering it.
func (s *session) receiveProbe(st *stream, h wire.ChunkHeader, header *[wire.ChunkHeaderSize]byte, body []byte) *SessionError {
	in, i, err := s.probes.expected(h)
	if err != nil {
		return violation(err)
	}
	plain, fail := s.readBody(st, header, body)
	if fail != nil {
		return fail
	}
	if in == nil {
		s.mux.count.chunksDropped.Add(1)
		return nil
	}
	s.countReceived(h)
	answer, err := s.probes.received(in, i, sha256.Sum256(plain))
	if err != nil {
		return violation(err)
	}
	if answer != nil {
		return s.reply(answer)
	}
	return nil
}
