// Package enginesock is the engine socket, version 1: how the KV connector
// inside an engine talks to the KV daemon of its host. The protocol itself is
// docs/protocols/engine-socket.md.
//
// messages.go has a struct for every packet, codec.go turns them into bytes and
// back, conn.go carries packets and descriptors; daemon and client use all
// three. client.go is the client that an engine written in Go uses. The
// conformance suite for daemons and clients is in the folder conformance, a
// client in Python in the folder python.
package enginesock
