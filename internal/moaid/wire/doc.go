// Package wire is the peer protocol, version 1, as bytes: control frames, the
// opening of a data stream, chunk headers and how a chunk is sealed. The
// protocol is docs/protocols/peer-wire.md.
//
// The package is pure: no socket, clock, goroutine or randomness. Encoders
// append to a slice; parsers take a slice, say how much they used, and check
// every length before they allocate. A body may be longer than what a parser
// knows (the rest is ignored) but never shorter.
package wire
