// Package kvcache says what a KV cache looks like in memory and what a transfer
// of it contains. It is pure: no I/O, no clock, no randomness.
//
// Terms. A cache is a set of groups; the layers of one group share one way of
// keeping tokens (all of them, or the last Window). A page is what one layer
// keeps for one block of BlockSize tokens on one rank. A payload is the byte
// string that one rank sends for one prompt: it has the same order on every
// engine whose fingerprint is equal, so that offsets into it can travel instead
// of addresses.
package kvcache
