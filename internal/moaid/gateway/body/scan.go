package body

import (
	"fmt"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a body. Engines' own parsers give up at about
// 1,000.
const maxDepth = 512

// span is a range of a body, [from, to).
type span struct{ from, to int }

// member is a member of the outermost object whose key is wanted.
type member struct {
	key     Key
	span    span // from the key's quote to the end of the value
	value   span
	prevEnd int // end of the member before, -1 if there is none
	next    int // start of the member after, -1 if there is none
}

// object is the outermost object of a body.
type object struct {
	src     []byte
	members []member // the wanted ones in the order of the body, duplicates included
	first   int      // start of the first member, -1 if there is none
	last    int      // end of the last member
}

// errSyntax is what is wrong, at a byte offset.
func errSyntax(at int, what string) error {
	return fmt.Errorf("the body is no valid JSON: %s at byte %d", what, at)
}

// scan checks that b is one JSON object in UTF-8 and finds its wanted members.
func scan(b []byte) (*object, error) {
	if !utf8.Valid(b) {
		at := 0
		for r, n := utf8.DecodeRune(b); r != utf8.RuneError || n > 1; r, n = utf8.DecodeRune(b[at:]) {
			at += n
		}
		return nil, errSyntax(at, "what is not UTF-8")
	}
	s := scanner{b: b}
	o := &object{src: b, first: -1}
	s.space()
	if s.peek() != '{' {
		return nil, errSyntax(s.i, "no object begins")
	}
	s.i++
	prevEnd, pending := -1, -1
	for s.space(); s.peek() != '}'; s.space() {
		if prevEnd >= 0 {
			if s.peek() != ',' {
				return nil, errSyntax(s.i, "neither , nor }")
			}
			s.i++
			s.space()
		}
		m := member{prevEnd: prevEnd, next: -1}
		m.span.from = s.i
		if err := s.str(); err != nil {
			return nil, err
		}
		m.key = keyOf(b[m.span.from+1 : s.i-1])
		s.space()
		if s.peek() != ':' {
			return nil, errSyntax(s.i, "no :")
		}
		s.i++
		s.space()
		m.value.from = s.i
		if err := s.value(1); err != nil {
			return nil, err
		}
		m.value.to, m.span.to = s.i, s.i
		if pending >= 0 {
			o.members[pending].next = m.span.from
			pending = -1
		}
		if m.key != keyOther {
			pending = len(o.members)
			o.members = append(o.members, m)
		}
		if o.first < 0 {
			o.first = m.span.from
		}
		prevEnd, o.last = s.i, s.i
	}
	s.i++
	s.space()
	if s.i != len(b) {
		return nil, errSyntax(s.i, "data after the object")
	}
	return o, nil
}

// get gives the value of a key. Of duplicates the last counts, as in the
// engines' parsers.
func (o *object) get(k Key) ([]byte, bool) {
	for i := len(o.members) - 1; i >= 0; i-- {
		if m := o.members[i]; m.key == k {
			return o.src[m.value.from:m.value.to], true
		}
	}
	return nil, false
}

// scanner walks over JSON.
type scanner struct {
	b []byte
	i int
}

// peek gives the next byte, 0 at the end. A NUL in the body is no JSON, so that
// the two need not be told apart.
func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// str walks over a string, quotes included.
func (s *scanner) str() error {
	if s.peek() != '"' {
		return errSyntax(s.i, "no string begins")
	}
	b, i := s.b, s.i+1
	for i < len(b) {
		switch c := b[i]; {
		case c == '"':
			s.i = i + 1
			return nil
		case c == '\\':
			n, err := escape(b, i)
			if err != nil {
				return err
			}
			i += n
		case c < 0x20:
			return errSyntax(i, "a control character in a string")
		default:
			i++
		}
	}
	return errSyntax(len(b), "a string does not end")
}

// escape gives the length of the escape sequence at i.
func escape(b []byte, i int) (int, error) {
	if i+1 >= len(b) {
		return 0, errSyntax(i, "an escape does not end")
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, nil
	case 'u':
		if i+6 > len(b) {
			return 0, errSyntax(i, "an escape does not end")
		}
		for _, c := range b[i+2 : i+6] {
			if !isHex(c) {
				return 0, errSyntax(i, "an escape is not \\u and 4 hex digits")
			}
		}
		return 6, nil
	}
	return 0, errSyntax(i, "an unknown escape")
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// value walks over any value at a depth.
func (s *scanner) value(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("the body is nested deeper than %d", maxDepth)
	}
	switch c := s.peek(); {
	case c == '"':
		return s.str()
	case c == '{':
		return s.compound('}', depth)
	case c == '[':
		return s.compound(']', depth)
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return errSyntax(s.i, "no value begins")
}

// compound walks over an object or array that ends with end.
func (s *scanner) compound(end byte, depth int) error {
	s.i++
	for n := 0; ; n++ {
		s.space()
		if s.peek() == end {
			s.i++
			return nil
		}
		if n > 0 {
			if s.peek() != ',' {
				return errSyntax(s.i, "neither , nor the end of an array or object")
			}
			s.i++
			s.space()
		}
		if end == '}' {
			if err := s.str(); err != nil {
				return err
			}
			s.space()
			if s.peek() != ':' {
				return errSyntax(s.i, "no :")
			}
			s.i++
			s.space()
		}
		if err := s.value(depth + 1); err != nil {
			return err
		}
	}
}

func (s *scanner) literal(l string) error {
	if len(s.b)-s.i < len(l) || string(s.b[s.i:s.i+len(l)]) != l {
		return errSyntax(s.i, "no value begins")
	}
	s.i += len(l)
	return nil
}

func (s *scanner) digits() int {
	from := s.i
	for c := s.peek(); '0' <= c && c <= '9'; c = s.peek() {
		s.i++
	}
	return s.i - from
}

func (s *scanner) number() error {
	if s.peek() == '-' {
		s.i++
	}
	from := s.i
	if n := s.digits(); n == 0 || n > 1 && s.b[from] == '0' {
		return errSyntax(from, "a malformed number")
	}
	if s.peek() == '.' {
		s.i++
		if s.digits() == 0 {
			return errSyntax(s.i, "a malformed number")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.i++
		if c := s.peek(); c == '+' || c == '-' {
			s.i++
		}
		if s.digits() == 0 {
			return errSyntax(s.i, "a malformed number")
		}
	}
	return nil
}
