// Package transport carries control frames and chunks between daemons, and
// requests from gateways, over one TCP port. It authenticates, encrypts, keeps
// sessions alive and dials again; what the messages mean is its Handler's
// affair. The protocol is docs/protocols/peer-wire.md.
//
// # Sessions
//
// A session is one TLS control connection and its data streams. It is up on a
// side once all its streams are open there, and down as a whole: any of its
// connections that breaks, times out or violates the protocol ends it. A new
// session of the same peer replaces the old one. Handler sees, for each
// session: SessionUp, then Message, ChunkTarget and ChunkDone, then SessionDown
// exactly once and nothing after it. The old session's SessionDown comes before
// the new one's SessionUp.
//
// # Goroutines
//
// Each session has one reader and one writer of its control connection, one
// reader for each stream, and one owner that waits for them. Senders borrow a
// stream from a channel, so no lock is held across I/O. Mux.Close waits for
// everything that the Mux started.
package transport
