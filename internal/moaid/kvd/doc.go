// Package kvd is the KV daemon of a host. It is the shell around the pure
// packages: it leases pages (arena), drives one state machine a transfer
// (transfer), divides the ingest budget (pacing) and decides compatibility
// (kvcompat).
//
// One goroutine, the owner, holds all state of engines and transfers. Others
// post closures to it: sessions of engines, the transport's callbacks, chunk
// senders, HTTP handlers. The owner never waits for any of them, for the network
// or for a disk. What must be known while a chunk is being read is in landings,
// which have a lock of their own that is never held across I/O.
package kvd
