// Package sse finds the events in a stream of server-sent events without
// decoding them. It is pure.
package sse

import "bytes"

// Counter looks at a stream that arrives in pieces. The zero value is at the
// beginning of a stream.
type Counter struct {
	// Done is set once the event "data: [DONE]" was seen, by which OpenAI-shaped
	// streams say that they are complete.
	Done bool
	// Failed is set once an event was seen that is an error. Complete ends after it:
	// what follows, a [DONE] or a usage, is not of an answer that is complete.
	Failed bool
	seen   int // bytes of the buffer that hold no end of an event
}

// Complete gives the length of the whole events at the beginning of buf, and how
// many of them carry data. The caller passes those on, and calls again with what
// is left of buf and the bytes that followed.
func (c *Counter) Complete(buf []byte) (length, events int) {
	from := max(c.seen-3, 0) // an end of an event is at most 3 bytes long
	for {
		end := boundary(buf, from)
		if end < 0 {
			c.seen = len(buf) - length
			return length, events
		}
		if c.event(buf[length:end]) {
			events++
		}
		length, from = end, end
		if c.Failed {
			return length, events
		}
	}
}

// Finish looks at what is left at the end of a stream, where the last event may
// lack its blank line. It reports whether the stream is complete.
func (c *Counter) Finish(rest []byte) bool {
	if len(rest) > 0 {
		c.event(rest)
	}
	return c.Done
}

// boundary gives the index after the first blank line that ends at or after
// from, -1 if there is none.
func boundary(b []byte, from int) int {
	for i := from; ; i++ {
		n := bytes.IndexByte(b[i:], '\n')
		if n < 0 {
			return -1
		}
		i += n
		switch {
		case i+1 < len(b) && b[i+1] == '\n':
			return i + 2
		case i+2 < len(b) && b[i+1] == '\r' && b[i+2] == '\n':
			return i + 3
		}
	}
}

var data = []byte("data:")

// errors are how the data of an error begins: OpenAI's shape, and that of older
// engines.
var errors = [...][]byte{[]byte(`{"error":{`), []byte(`{"error": {`), []byte(`{"object":"error"`), []byte(`{"object": "error"`)}

// event reports whether an event carries data, and notices the last one.
func (c *Counter) event(e []byte) bool {
	i := 0
	if !bytes.HasPrefix(e, data) { // the common case needs no search
		if i = bytes.Index(e, []byte("\ndata:")); i < 0 {
			return false
		}
		i++
	}
	payload := bytes.TrimSpace(e[i+len(data):])
	if string(payload) == "[DONE]" {
		c.Done = true
		return false
	}
	for _, begin := range errors {
		c.Failed = c.Failed || bytes.HasPrefix(payload, begin)
	}
	return true
}
