package kvcache

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// TokenHash identifies a prompt: hex sha256 over its token ids as little-endian
// uint32, so that a decode engine can tell that the KV it is offered belongs to
// the prompt that it was given.
func TokenHash(tokens []int) string {
	h := sha256.New()
	var b [4]byte
	for _, t := range tokens {
		binary.LittleEndian.PutUint32(b[:], uint32(t))
		h.Write(b[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}
