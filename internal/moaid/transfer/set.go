package transfer

import "github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"

// Set is a set of payload bytes: ascending ranges that neither overlap nor
// touch. The operations leave their arguments alone.
type Set []kvcache.Range

// MaxRanges bounds the ranges of a GRANT, and the pieces of what a rank has
// stored: the work for each chunk grows with them, and it is done where all
// transfers are. A payload's geometry needs a few, a session that returns some
// dozens.
const MaxRanges = 4096

func end(r kvcache.Range) int64 { return r.Offset + r.Length }

// SetOf gives the union of rs, which may be in any order.
func SetOf(rs ...kvcache.Range) Set {
	var s Set
	for _, r := range rs {
		s = s.Add(r)
	}
	return s
}

// Ascending gives the union of rs, which ascend by offset, in one pass.
func Ascending(rs []kvcache.Range) Set {
	out := make(Set, 0, len(rs))
	for _, r := range rs {
		if r.Length <= 0 {
			continue
		}
		if n := len(out); n > 0 && r.Offset <= end(out[n-1]) {
			out[n-1].Length = max(end(out[n-1]), end(r)) - out[n-1].Offset
			continue
		}
		out = append(out, r)
	}
	return out
}

// Add gives the union of s and r.
func (s Set) Add(r kvcache.Range) Set {
	if r.Length <= 0 {
		return s
	}
	out := make(Set, 0, len(s)+1)
	i := 0
	for ; i < len(s) && end(s[i]) < r.Offset; i++ {
		out = append(out, s[i])
	}
	lo, hi := r.Offset, end(r)
	for ; i < len(s) && s[i].Offset <= hi; i++ {
		lo, hi = min(lo, s[i].Offset), max(hi, end(s[i]))
	}
	out = append(out, kvcache.Range{Offset: lo, Length: hi - lo})
	return append(out, s[i:]...)
}

// Sub gives s without t.
func (s Set) Sub(t Set) Set {
	var out Set
	j := 0
	for _, r := range s {
		lo, hi := r.Offset, end(r)
		for j < len(t) && end(t[j]) <= lo {
			j++
		}
		for k := j; k < len(t) && t[k].Offset < hi; k++ {
			if t[k].Offset > lo {
				out = append(out, kvcache.Range{Offset: lo, Length: t[k].Offset - lo})
			}
			lo = max(lo, end(t[k]))
		}
		if lo < hi {
			out = append(out, kvcache.Range{Offset: lo, Length: hi - lo})
		}
	}
	return out
}

// And gives what s and t have in common.
func (s Set) And(t Set) Set {
	var out Set
	for i, j := 0, 0; i < len(s) && j < len(t); {
		lo, hi := max(s[i].Offset, t[j].Offset), min(end(s[i]), end(t[j]))
		if lo < hi {
			out = append(out, kvcache.Range{Offset: lo, Length: hi - lo})
		}
		if end(s[i]) < end(t[j]) {
			i++
		} else {
			j++
		}
	}
	return out
}

// Has reports whether all of r is in s.
func (s Set) Has(r kvcache.Range) bool {
	for _, x := range s {
		if x.Offset <= r.Offset && end(r) <= end(x) {
			return true
		}
	}
	return r.Length == 0
}

// Prefix gives the first n bytes of s, counted over its ranges in order.
func (s Set) Prefix(n int64) Set {
	var out Set
	for _, r := range s {
		if n <= 0 {
			break
		}
		r.Length = min(r.Length, n)
		n -= r.Length
		out = append(out, r)
	}
	return out
}

// Bytes is the number of bytes in s.
func (s Set) Bytes() int64 { return kvcache.TotalBytes(s) }

// valid reports whether rs can be used as a Set within a payload of size bytes.
func valid(rs []kvcache.Range, size int64) bool {
	last := int64(-1)
	for _, r := range rs {
		if r.Length <= 0 || r.Offset <= last || r.Offset < 0 || r.Length > size || r.Offset > size-r.Length {
			return false
		}
		last = end(r) - 1
	}
	return true
}
