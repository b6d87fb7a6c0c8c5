package transport

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/wire"
)

// probeChunks is how many chunks a probe has.
func probeChunks(bytes int64) int { return int((bytes + wire.MaxChunk - 1) / wire.MaxChunk) }

// probeLength is the length of chunk i.
func probeLength(bytes int64, i int) int {
	return int(min(wire.MaxChunk, bytes-int64(i)*wire.MaxChunk))
}

// fillProbe makes the content of chunk i: pseudo-random, so that no path can
// compress it or have it already, and seeded, so that it need not be kept.
func fillProbe(b []byte, id wire.ID, i int) {
	seed := sha256.Sum256(binary.BigEndian.AppendUint64(append([]byte("moai-probe"), id[:]...), uint64(i)))
	r := rand.NewChaCha8(seed)
	_, _ = r.Read(b) // it never fails
}

// probeDigests collects the digest of each chunk, in any order: at most 1024 of
// 32 bytes.
type probeDigests struct {
	bytes   int64
	digests [][sha256.Size]byte
	have    []bool
	left    int
}

func newProbeDigests(bytes int64) *probeDigests {
	n := probeChunks(bytes)
	return &probeDigests{bytes: bytes, digests: make([][sha256.Size]byte, n), have: make([]bool, n), left: n}
}

// index is which chunk a header is, if it may be one of this probe.
func (p *probeDigests) index(h wire.ChunkHeader) (int, error) {
	i := h.Offset / wire.MaxChunk
	if h.Offset%wire.MaxChunk != 0 || h.Offset >= p.bytes || h.Length != probeLength(p.bytes, int(i)) || h.Rank != 0 {
		return 0, &wire.Error{Code: wire.CodeProtocol, Reason: fmt.Sprintf("a probe of %d bytes has no chunk of %d at %d", p.bytes, h.Length, h.Offset)}
	}
	return int(i), nil
}

// add takes the digest of chunk i and says whether it was the last. A repeated
// chunk is refused.
func (p *probeDigests) add(i int, digest [sha256.Size]byte) (complete bool, err error) {
	if p.have[i] {
		return false, &wire.Error{Code: wire.CodeProtocol, Reason: fmt.Sprintf("chunk %d of a probe came twice", i)}
	}
	p.have[i], p.digests[i] = true, digest
	p.left--
	return p.left == 0, nil
}

// root is the hash of the PROBE frame.
func (p *probeDigests) root() [sha256.Size]byte {
	h := sha256.New()
	for i := range p.digests {
		h.Write(p.digests[i][:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// probeHash computes the root for the content that fillProbe makes.
func probeHash(id wire.ID, bytes int64) [sha256.Size]byte {
	p := newProbeDigests(bytes)
	buf := make([]byte, wire.MaxChunk)
	for i := range p.digests {
		b := buf[:probeLength(bytes, i)]
		fillProbe(b, id, i)
		p.digests[i] = sha256.Sum256(b)
	}
	return p.root()
}
