// Package arena is the staging memory of a host: memfds that engines and the
// daemon both map, and leases of pages in them.
//
// The allocator ([Pages]) is pure. A [Pool] adds leases with a reference for
// every chunk that is being read or written: a lease that was released keeps its
// pages in quarantine until the last such reference is gone, so that a late
// write never lands in pages that belong to somebody else. free + held +
// quarantined pages are always the total.
//
// A memfd is sealed against shrinking, growing and further seals, so that no
// client can make the daemon fault on a truncated mapping. Seals and size are
// verified on every descriptor that comes back from a client.
package arena
