// Package conformance checks daemons and clients of the engine socket, version 1,
// against docs/protocols/engine-socket.md. Any pair of linked daemons and any
// client can be put through it: the harness brings the daemons up, the factory
// makes clients.
package conformance
