package sse_test

import (
	"bytes"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/gateway/sse"
)

const stream = "data: {\"a\":1}\n\n: ping\n\ndata: {\"b\":\"x\"}\r\n\r\nevent: e\ndata: 3\n\ndata: [DONE]\n\n"

// run feeds s in pieces of n bytes and gives what was passed on.
func run(s []byte, n int) (passed []byte, events int, c *sse.Counter, rest []byte) {
	c = new(sse.Counter)
	for len(s) > 0 {
		k := min(n, len(s))
		rest = append(rest, s[:k]...)
		s = s[k:]
		l, e := c.Complete(rest)
		passed = append(passed, rest[:l]...)
		rest = append(rest[:0], rest[l:]...)
		events += e
	}
	return passed, events, c, rest
}

func TestEveryCutGivesTheSameEvents(t *testing.T) {
	for n := 1; n <= len(stream); n++ {
		passed, events, c, rest := run([]byte(stream), n)
		if string(passed) != stream || events != 3 || !c.Done || len(rest) != 0 {
			t.Errorf("pieces of %d: %d events, done %v, passed %q", n, events, c.Done, passed)
		}
	}
}

func TestErrorsEndAStream(t *testing.T) {
	const before = "data: {\"a\":{\"error\":{}}}\n\ndata: {\"error\":null}\n\n"
	for _, e := range []string{`{"error":{"code":1}}`, `{"error": {"code":1}}`, `{"object":"error","message":"m"}`} {
		in := before + "data: " + e + "\n\n"
		for _, n := range []int{1, 7, 1000} {
			c := new(sse.Counter)
			var buf []byte
			passed := ""
			for rest := in + "data: [DONE]\n\n"; rest != "" && !c.Failed; {
				k := min(n, len(rest))
				buf, rest = append(buf, rest[:k]...), rest[k:]
				l, _ := c.Complete(buf)
				passed += string(buf[:l])
				buf = append(buf[:0], buf[l:]...)
			}
			if passed != in || !c.Failed || c.Done {
				t.Errorf("%s, pieces of %d: passed %q, %+v", e, n, passed, c)
			}
		}
	}
}

func TestCutStreams(t *testing.T) {
	for _, c := range []struct {
		in, passed string
		complete   bool
	}{
		{"data: 1\n\ndata: {\"hal", "data: 1\n\n", false},
		{"data: 1\n\ndata: 2\n", "data: 1\n\n", false},
		{"data: 1\n\ndata: [DONE]", "data: 1\n\n", true},
		{"data: 1\n\ndata: [DONE]\n", "data: 1\n\n", true},
		{"data:[DONE]\n\n", "data:[DONE]\n\n", true},
		{"", "", false},
		{"data: the [DONE]\n\n", "data: the [DONE]\n\n", false},
	} {
		passed, _, counter, rest := run([]byte(c.in), 4)
		if string(passed) != c.passed || counter.Finish(rest) != c.complete {
			t.Errorf("%q: passed %q, complete %v", c.in, passed, counter.Done)
		}
	}
}

func FuzzComplete(f *testing.F) {
	f.Add([]byte(stream), 1)
	f.Add([]byte("\n\r\n\r\n\ndata: x\r\r\n\n"), 3)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		if n < 1 {
			return
		}
		whole, events, c1, rest1 := run(b, len(b)+1)
		passed, e2, c2, rest2 := run(b, n)
		if !bytes.Equal(whole, passed) || events != e2 || c1.Done != c2.Done || !bytes.Equal(rest1, rest2) {
			t.Fatalf("pieces of %d of %q: passed %q and %q, events %d and %d", n, b, whole, passed, events, e2)
		}
		if got := bytes.Join([][]byte{passed, rest2}, nil); !bytes.Equal(got, b) {
			t.Fatalf("bytes were lost: %q", got)
		}
		c2.Finish(rest2)
	})
}
