package wire

import "math"

// Range is a part of a rank's payload, in bytes. A parsed range ends within
// int64.
type Range struct {
	Offset int64
	Length int64
}

// Grant names the payload ranges that decode wants of a rank and the cumulative
// credit in bytes, counted over the ranges in order. It replaces an earlier
// grant of the rank and restarts the count.
type Grant struct {
	ID     ID
	Rank   uint16
	Ranges []Range
	Credit int64
}

// Type is TypeGrant.
func (m *Grant) Type() byte { return TypeGrant }

// Append appends the frame.
func (m *Grant) Append(b []byte) []byte { return appendFrame(b, m) }

func (m *Grant) encode(e *encoder) {
	e.id(m.ID)
	e.u16(m.Rank)
	n := e.count(len(m.Ranges), "ranges")
	for _, r := range m.Ranges[:n] {
		e.size(r.Offset, "range offset")
		e.size(r.Length, "range length")
	}
	e.size(m.Credit, "credit")
}

func (m *Grant) decode(d *decoder) {
	m.ID = d.id("id")
	m.Rank = d.u16("rank")
	if n := d.count(16, "ranges"); n > 0 {
		m.Ranges = make([]Range, 0, n)
		for range n {
			r := Range{Offset: d.size("range offset"), Length: d.size("range length")}
			if r.Offset > math.MaxInt64-r.Length {
				d.fail("range ends beyond 2^63")
			}
			m.Ranges = append(m.Ranges, r)
		}
	}
	m.Credit = d.size("credit")
}

// Credit raises the cumulative credit of a rank.
type Credit struct {
	ID     ID
	Rank   uint16
	Credit int64
}

// Type is TypeCredit.
func (m *Credit) Type() byte { return TypeCredit }

// Append appends the frame.
func (m *Credit) Append(b []byte) []byte { return appendFrame(b, m) }

func (m *Credit) encode(e *encoder) {
	e.id(m.ID)
	e.u16(m.Rank)
	e.size(m.Credit, "credit")
}

func (m *Credit) decode(d *decoder) {
	m.ID = d.id("id")
	m.Rank = d.u16("rank")
	m.Credit = d.size("credit")
}
