package body

import (
	"bytes"
	"io"
)

// Segments is a body in pieces, most of them parts of the body that came in:
// taking members out and putting others in copies nothing.
type Segments [][]byte

// Len is the length in bytes.
func (s Segments) Len() int64 {
	var n int64
	for _, p := range s {
		n += int64(len(p))
	}
	return n
}

// Bytes gives the body in one piece.
func (s Segments) Bytes() []byte { return bytes.Join(s, nil) }

// Reader reads the body from its beginning.
func (s Segments) Reader() io.Reader {
	rs := make([]io.Reader, len(s))
	for i, p := range s {
		rs[i] = bytes.NewReader(p)
	}
	return io.MultiReader(rs...)
}

// field is a member to put in. value is JSON.
type field struct {
	key   Key
	value []byte
}

var (
	openBrace  = []byte("{")
	closeBrace = []byte("}")
	comma      = []byte(",")
)

// splice takes every member with one of the keys in remove out, and puts add at
// the end. All other members stay byte for byte, in their order.
func (o *object) splice(remove keySet, add ...field) Segments {
	out := Segments{openBrace}
	empty := true
	keep := func(p []byte) {
		if !empty {
			out = append(out, comma)
		}
		empty = false
		out = append(out, p)
	}
	// from is where the run of members that stay begins, -1 if none does.
	from := o.first
	for _, m := range o.members {
		if !remove.has(m.key) {
			continue
		}
		if from >= 0 && from < m.span.from {
			keep(o.src[from:m.prevEnd])
		}
		from = m.next
	}
	if from >= 0 {
		keep(o.src[from:o.last])
	}
	for _, f := range add {
		p := make([]byte, 0, len(names[f.key])+3+len(f.value))
		p = append(p, '"')
		p = append(p, names[f.key]...)
		p = append(p, '"', ':')
		keep(append(p, f.value...))
	}
	return append(out, closeBrace)
}

// keySet is a set of keys.
type keySet uint32

func setOf(ks ...Key) keySet {
	var s keySet
	for _, k := range ks {
		s |= 1 << k
	}
	return s
}

func (s keySet) has(k Key) bool { return s&(1<<k) != 0 }
