package wire

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// decoder reads the protocol's primitive types from a body. The first failure
// sticks; reads after it give zero values.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = protocolError(format, args...)
	}
	d.b = nil
}

func (d *decoder) take(n int, what string) []byte {
	if d.err != nil {
		return nil
	}
	if len(d.b) < n {
		d.fail("body ends within %s", what)
		return nil
	}
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) u8(what string) uint8 {
	if p := d.take(1, what); p != nil {
		return p[0]
	}
	return 0
}

func (d *decoder) u16(what string) uint16 {
	if p := d.take(2, what); p != nil {
		return binary.BigEndian.Uint16(p)
	}
	return 0
}

func (d *decoder) u32(what string) uint32 {
	if p := d.take(4, what); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

func (d *decoder) u64(what string) uint64 {
	if p := d.take(8, what); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

// size reads a byte count or position. Values beyond int64 are refused here, so
// that no sum of two of them elsewhere starts out wrapped.
func (d *decoder) size(what string) int64 {
	v := d.u64(what)
	if v > math.MaxInt64 {
		d.fail("%s is beyond 2^63", what)
		return 0
	}
	return int64(v)
}

func (d *decoder) id(what string) (id ID) {
	copy(id[:], d.take(len(id), what))
	return id
}

func (d *decoder) hash(what string) (h [32]byte) {
	copy(h[:], d.take(len(h), what))
	return h
}

func (d *decoder) str(what string) string {
	n := int(d.u16(what))
	p := d.take(n, what)
	if !utf8.Valid(p) {
		d.fail("%s is not UTF-8", what)
		return ""
	}
	return string(p)
}

// count reads the length of a list whose items take at least minSize bytes, and
// refuses one that the rest of the body cannot hold: nothing is allocated for
// a number alone.
func (d *decoder) count(minSize int, what string) int {
	n := int(d.u16(what))
	if d.err == nil && n*minSize > len(d.b) {
		d.fail("body ends within %s", what)
		return 0
	}
	return n
}
