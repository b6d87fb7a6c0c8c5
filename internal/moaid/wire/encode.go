package wire

import (
	"encoding/binary"
	"unicode/utf8"
)

// encoder appends the protocol's primitive types. What the format cannot carry
// is clipped and remembered, so that Append stays total and Encode can refuse.
type encoder struct {
	b       []byte
	clipped string
}

func (e *encoder) u8(v uint8)   { e.b = append(e.b, v) }
func (e *encoder) u16(v uint16) { e.b = binary.BigEndian.AppendUint16(e.b, v) }
func (e *encoder) u32(v uint32) { e.b = binary.BigEndian.AppendUint32(e.b, v) }
func (e *encoder) u64(v uint64) { e.b = binary.BigEndian.AppendUint64(e.b, v) }
func (e *encoder) id(v ID)      { e.b = append(e.b, v[:]...) }

func (e *encoder) hash(v [32]byte) { e.b = append(e.b, v[:]...) }

// size appends a byte count or position, which is never negative in memory.
func (e *encoder) size(v int64, what string) {
	if v < 0 {
		e.clipped = what + " is negative"
		v = 0
	}
	e.u64(uint64(v))
}

func (e *encoder) str(s, what string) {
	if !utf8.ValidString(s) {
		e.clipped = what + " is not UTF-8"
		s = ""
	}
	if len(s) > maxString {
		e.clipped = what + " is longer than 65535 bytes"
		n := maxString
		for !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	e.u16(uint16(len(s)))
	e.b = append(e.b, s...)
}

// count appends the length of a list and says how many items go.
func (e *encoder) count(n int, what string) int {
	if n > maxList {
		e.clipped = what + " has more than 65535 items"
		n = maxList
	}
	e.u16(uint16(n))
	return n
}
