package transport

import "sync/atomic"

// Counters count since the Mux was made. All only rise.
type Counters struct {
	Accepted        uint64 // connections on the port
	Evicted         uint64 // unauthenticated ones that a newer one pushed out
	RefusedSilent   uint64 // nothing, or not enough, was said in time
	RefusedBytes    uint64 // first bytes of no protocol that is spoken here
	RefusedTLS      uint64 // no TLS 1.3, no ALPN, or a key that is not pinned for the role
	RefusedHello    uint64 // authenticated, but version, node, link or encryption did not fit
	RefusedOpenings uint64 // data streams of no session, with a wrong MAC, or repeated
	Dials           uint64
	DialErrors      uint64
	SessionsUp      uint64
	SessionsDown    uint64
	FramesSent      uint64
	FramesReceived  uint64
	FramesUnknown   uint64
	QueueOverflows  uint64
	ChunksSent      uint64
	ChunksReceived  uint64 // checked and delivered
	ChunksDropped   uint64 // checked, of an unknown or ended transfer
	ChunksFailed    uint64 // failed a check; each ended its session
	BytesSent       uint64 // plain bytes of ChunksSent, probes included
	BytesReceived   uint64 // plain bytes of ChunksReceived, probes included
}

type counters struct {
	accepted, evicted, refusedSilent, refusedBytes, refusedTLS, refusedHello, refusedOpenings atomic.Uint64
	dials, dialErrors, sessionsUp, sessionsDown                                               atomic.Uint64
	framesSent, framesReceived, framesUnknown, queueOverflows                                 atomic.Uint64
	chunksSent, chunksReceived, chunksDropped, chunksFailed, bytesSent, bytesReceived         atomic.Uint64
}

// Counters reads all counters. They are read one after another, not at one
// instant.
func (m *Mux) Counters() Counters {
	c := &m.count
	return Counters{
		Accepted: c.accepted.Load(), Evicted: c.evicted.Load(), RefusedSilent: c.refusedSilent.Load(),
		RefusedBytes: c.refusedBytes.Load(), RefusedTLS: c.refusedTLS.Load(), RefusedHello: c.refusedHello.Load(),
		RefusedOpenings: c.refusedOpenings.Load(), Dials: c.dials.Load(), DialErrors: c.dialErrors.Load(),
		SessionsUp: c.sessionsUp.Load(), SessionsDown: c.sessionsDown.Load(), FramesSent: c.framesSent.Load(),
		FramesReceived: c.framesReceived.Load(), FramesUnknown: c.framesUnknown.Load(), QueueOverflows: c.queueOverflows.Load(),
		ChunksSent: c.chunksSent.Load(), ChunksReceived: c.chunksReceived.Load(), ChunksDropped: c.chunksDropped.Load(),
		ChunksFailed: c.chunksFailed.Load(), BytesSent: c.bytesSent.Load(), BytesReceived: c.bytesReceived.Load(),
	}
}
