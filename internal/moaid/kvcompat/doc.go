// Package kvcompat decides whether the KV cache that one engine wrote may be
// read by another. It is pure, and the same function gives the verdict at plan
// (on planned fingerprints) and in the daemons (on registered ones).
package kvcompat
