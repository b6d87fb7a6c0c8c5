package wire

import (
	"encoding/binary"
	"math"
)

// Kind says what a chunk carries.
type Kind uint8

// Kinds of chunks.
const (
	KindKV    Kind = 1
	KindProbe Kind = 2
)

// ChunkHeader goes before each chunk's body, in clear: it is authenticated with
// the body, not hidden.
type ChunkHeader struct {
	Kind    Kind
	Rank    uint16
	ID      ID
	Offset  int64 // into the rank's payload, or into the probe's bytes
	Counter uint64
	Length  int // plain bytes, 1 to MaxChunk
}

// Append appends the 44 header bytes.
func (h ChunkHeader) Append(b []byte) []byte {
	b = append(b, byte(h.Kind), 0)
	b = binary.BigEndian.AppendUint16(b, h.Rank)
	b = append(b, h.ID[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Offset))
	b = binary.BigEndian.AppendUint64(b, h.Counter)
	b = binary.BigEndian.AppendUint32(b, uint32(h.Length))
	return append(b, 0, 0, 0, 0)
}

// Check says whether the header may be on the wire.
func (h ChunkHeader) Check() error {
	switch {
	case h.Kind != KindKV && h.Kind != KindProbe:
		return protocolError("chunk kind %d is unknown", h.Kind)
	case h.Length < 1 || h.Length > MaxChunk:
		return protocolError("chunk length %d is not within 1 and %d", h.Length, MaxChunk)
	case h.Offset < 0 || h.Offset > math.MaxInt64-MaxChunk:
		return protocolError("chunk offset is beyond 2^63")
	case h.Counter > MaxCounter:
		return protocolError("chunk counter %d is beyond 2^32", h.Counter)
	}
	return nil
}

// ParseChunkHeader reads and checks a header. The flags and the reserved word
// must be zero: a later version may give them a meaning that this one must not
// overlook.
func ParseChunkHeader(b *[ChunkHeaderSize]byte) (ChunkHeader, error) {
	h := ChunkHeader{
		Kind:    Kind(b[0]),
		Rank:    binary.BigEndian.Uint16(b[2:]),
		ID:      ID(b[4:20]),
		Offset:  int64(binary.BigEndian.Uint64(b[20:])), // a value beyond int64 is negative here and fails Check
		Counter: binary.BigEndian.Uint64(b[28:]),
		Length:  int(binary.BigEndian.Uint32(b[36:])),
	}
	if b[1] != 0 || binary.BigEndian.Uint32(b[40:]) != 0 {
		return ChunkHeader{}, protocolError("chunk has flags %d and a reserved word that must be zero", b[1])
	}
	if err := h.Check(); err != nil {
		return ChunkHeader{}, err
	}
	return h, nil
}
