package convert

import (
	"encoding/binary"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache/element"
)

// box is a set of heads and tokens that a source page and a destination page
// have in common, each counted from the page's first.
type box struct {
	srcHead, dstHead, heads    int
	srcToken, dstToken, tokens int
}

// extent is the range of bytes [lo, hi) of a page in which heads and tokens lie.
func (p *positions) extent(head, heads, token, tokens int) (lo, hi int) {
	lo = -1
	for part := range 2 {
		if len(p.dim[part]) == 0 {
			continue
		}
		least, most := bounds(p.token[part][token : token+tokens])
		_, wide := bounds(p.dim[part])
		from := head*p.head[part] + least
		to := (head+heads-1)*p.head[part] + most + wide + p.size
		if lo < 0 || from < lo {
			lo = from
		}
		hi = max(hi, to)
	}
	return lo, hi
}

func bounds(v []int) (least, most int) {
	least, most = v[0], v[0]
	for _, x := range v {
		least, most = min(least, x), max(most, x)
	}
	return least, most
}

// rows moves a box; in holds the source page's bytes from base on.
func (f *filler) rows(w window, in []byte, base int, l *lens, to *positions, b box) Count {
	var n Count
	for part := range 2 {
		dims := len(to.dim[part])
		if dims == 0 {
			continue
		}
		_, wide := bounds(to.dim[part])
		for h := range b.heads {
			srcHead, dstHead := (b.srcHead+h)*l.at.head[part]-base, (b.dstHead+h)*to.head[part]-w.skip
			for t := range b.tokens {
				src := srcHead + l.at.token[part][b.srcToken+t]
				dst := dstHead + to.token[part][b.dstToken+t]
				last := dst + wide + to.size
				switch {
				case last <= 0 || dst >= len(w.out):
				case dst < 0 || last > len(w.out):
					n = n.Add(f.cutRow(w.out, dst, to.dim[part], in, src, l.at.dim[part]))
				case l.same:
					copy(w.out[dst:last], in[src:])
				case l.bytes:
					n = n.Add(f.byteRow(w.out[dst:last], in[src:]))
				default:
					n = n.Add(f.row(w.out[dst:], to.dim[part], in[src:], l.at.dim[part]))
				}
			}
		}
	}
	return n
}

// row moves a row that is asked for as a whole.
func (f *filler) row(out []byte, dst []int, in []byte, src []int) Count {
	if f.recoder.Keeps() {
		keep(out, dst, in, src, f.src.Storage.DType.Size())
		return Count{}
	}
	codes, exact := f.recoder.Tables()
	size := f.dst.Storage.DType.Size()
	var clipped, rounded int64
	switch f.src.Storage.DType.Size() {
	case 1:
		codes, exact = codes[:256], exact[:256]
		for d, i := range src {
			c := in[i]
			store(out[dst[d]:], codes[c], size)
			clipped += int64(exact[c] >> 1)
			rounded += int64(exact[c] & 1)
		}
	case 2:
		for d, i := range src {
			c := binary.LittleEndian.Uint16(in[i:])
			store(out[dst[d]:], codes[c], size)
			clipped += int64(exact[c] >> 1)
			rounded += int64(exact[c] & 1)
		}
	default:
		for d, i := range src {
			code, e := f.recoder.Recode(binary.LittleEndian.Uint32(in[i:]))
			store(out[dst[d]:], code, size)
			clipped += int64(e >> 1)
			rounded += int64(e & 1)
		}
	}
	return Count{Clipped: clipped, Rounded: rounded}
}

// byteRow is row where both sides have neighbouring elements of one byte.
func (f *filler) byteRow(out, in []byte) Count {
	in = in[:len(out)]
	for i, c := range in {
		out[i] = f.bytes[c]
	}
	if !f.recoder.Clips() && !f.recoder.Rounds() {
		return Count{}
	}
	_, exact := f.recoder.Tables()
	exact = exact[:256]
	var clipped, rounded int64
	for _, c := range in {
		clipped += int64(exact[c] >> 1)
		rounded += int64(exact[c] & 1)
	}
	return Count{Clipped: clipped, Rounded: rounded}
}

func keep(out []byte, dst []int, in []byte, src []int, size int) {
	for d := range dst {
		o, i := dst[d], src[d]
		switch size {
		case 1:
			out[o] = in[i]
		case 2:
			out[o], out[o+1] = in[i], in[i+1]
		default:
			copy(out[o:o+4], in[i:i+4])
		}
	}
}

// cutRow moves a row of which only some bytes are asked for; at may be negative.
func (f *filler) cutRow(out []byte, at int, dst []int, in []byte, src int, srcDim []int) Count {
	var n Count
	from, to := f.src.Storage.DType.Size(), f.dst.Storage.DType.Size()
	for d := range dst {
		o := at + dst[d]
		if o+to <= 0 || o >= len(out) {
			continue
		}
		code, exact := f.recoder.Recode(load(in[src+srcDim[d]:], from))
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], code)
		for i := max(0, -o); i < to && o+i < len(out); i++ {
			out[o+i] = b[i]
		}
		if o >= 0 {
			n.note(exact)
		}
	}
	return n
}

func (c *Count) note(e element.Exactness) {
	c.Clipped += int64(e >> 1)
	c.Rounded += int64(e & 1)
}

func load(b []byte, size int) uint32 {
	switch size {
	case 1:
		return uint32(b[0])
	case 2:
		return uint32(binary.LittleEndian.Uint16(b))
	}
	return binary.LittleEndian.Uint32(b)
}

func store(b []byte, code uint32, size int) {
	switch size {
	case 1:
		b[0] = byte(code)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(code))
	default:
		binary.LittleEndian.PutUint32(b, code)
	}
}
