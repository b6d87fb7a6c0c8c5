// Package conformance checks an implementation of the peer wire, whatever it is,
// against the statements of docs/protocols/peer-wire.md. It speaks the wire by
// hand, with the codec of package wire and crypto/tls, and knows nothing of
// package transport.
package conformance
