package transport

import (
	"context"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// Session is an authenticated peer that is up. Its methods may be called from
// any goroutine, Handler's methods included, and fail with a *SessionError once
// it is down.
type Session interface {
	ID() wire.ID
	Peer() string // node name
	Instance() wire.ID
	Encryption() api.Encryption
	// Engines is the peer's last announcement. The caller must not change it.
	Engines() []wire.Engine
	// Send queues a frame. It never waits for the network: a queue that
	// overflows closes the session. A message that the format cannot carry is
	// refused without harm to the session.
	Send(m wire.Message) error
	// SendChunk sends the concatenation of src, at most wire.MaxChunk bytes, as
	// one chunk at offset of the rank's payload. It waits for a free stream and
	// until the chunk is written; src may be reused when it returns. ctx ends
	// the wait for a stream, not a write that has begun: its own deadline does.
	SendChunk(ctx context.Context, rank uint16, id wire.ID, offset int64, src [][]byte) error
	// Close ends the session, telling the peer why. It does not wait.
	Close(code wire.Code, reason string)
	// Done is closed when the session has begun to end.
	Done() <-chan struct{}
}

// Handler is told what arrives. Its methods are called from the session's
// reading goroutines, ChunkTarget and ChunkDone from one for each stream
// concurrently, and hold up what they were called from: they must not block
// long, and must not wait for a session to go down.
type Handler interface {
	SessionUp(s Session)
	// SessionDown is the last call for a session. The error is a *SessionError.
	SessionDown(s Session, err error)
	// Message is called with the frames of transfers and with *wire.Engines, in
	// the order in which the peer sent them.
	Message(s Session, m wire.Message)
	// ChunkTarget says where the bytes of a chunk go, before its body is read.
	// The header is not yet authenticated: nothing may be counted as received.
	// The lengths of dst must add up to h.Length. ok false drops the chunk. An
	// error ends the session: with its code if it is a *wire.Error, else with
	// wire.CodeProtocol.
	ChunkTarget(s Session, h wire.ChunkHeader) (dst [][]byte, ok bool, err error)
	// ChunkDone follows each ChunkTarget that said ok. With err nil the chunk
	// was checked and its bytes are in dst; otherwise dst is untouched and the
	// session ends.
	ChunkDone(s Session, h wire.ChunkHeader, err error)
}
