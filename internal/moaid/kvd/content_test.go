package kvd

import (
	"fmt"
	"hash/fnv"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// cells is the KV of a prompt, whatever cache it lies in: the code of each element.
type cells func(layer, head, token int, part kvcache.Part, dim int) byte

// mixed gives codes that depend on everything. They are numbers in each fp8 format.
func mixed(id string) cells {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	salt := h.Sum32()
	return func(layer, head, token int, part kvcache.Part, dim int) byte {
		x := salt ^ uint32(layer)*2654435761 ^ uint32(head)*40503 ^ uint32(token)*97 ^ uint32(part)*57 ^ uint32(dim)*13
		x ^= x >> 15
		x *= 2246822519
		x ^= x >> 13
		if b := byte(x); b&0x7f < 0x78 && b != 0x80 {
			return b
		}
		return 0x11
	}
}

// eachCell visits the elements of a rank's payload that the prompt has there and
// decode may read. at is the element's place in the payload.
func eachCell(fp *kvcache.Fingerprint, tokens, rank int, visit func(at int64, layer, head, token int, part kvcache.Part, dim int)) error {
	p, err := fp.PayloadFor(tokens)
	if err != nil {
		return err
	}
	for _, s := range p.Sections {
		g := fp.Groups[s.Group]
		first := 0
		if g.Kind == kvcache.GroupSliding {
			first = max(0, tokens-g.Window)
		}
		for token := max(first, s.FirstBlock*fp.Storage.BlockSize); token < tokens; token++ {
			block := s.Offset + int64(token/fp.Storage.BlockSize-s.FirstBlock)*s.BlockBytes
			for i, layer := range g.Layers {
				page := block + int64(i)*fp.PageBytes(s.Group)
				for head := range fp.RankHeads(s.Group) {
					for dim := range g.KeyDim + g.ValueDim {
						part, d := kvcache.Key, dim
						if dim >= g.KeyDim {
							part, d = kvcache.Value, dim-g.KeyDim
						}
						visit(page+fp.At(s.Group, head, token%fp.Storage.BlockSize, part, d), layer, fp.FirstHead(s.Group, rank)+head, token, part, d)
					}
				}
			}
		}
	}
	return nil
}

// storeCells writes a prompt's KV as this engine keeps it, each rank what is its
// own, and reports it in two pieces, of which late comes when it is called.
func (f *fake) storeCells(id string, tokens int, c cells) (late func()) {
	f.t.Helper()
	size := int64(f.fp.Storage.DType.Size())
	s, _ := f.sched.Sending(id)
	var rest []func()
	for rank, w := range f.work {
		p := must[kvcache.Payload](f.t, "payload")(f.fp.PayloadFor(tokens))
		payload := make([]byte, p.Bytes)
		if err := eachCell(&f.fp, tokens, rank, func(at int64, layer, head, token int, part kvcache.Part, dim int) {
			payload[at+size-1] = c(layer, head, token, part, dim)
		}); err != nil {
			f.t.Fatal(err)
		}
		var own []byte
		for _, r := range s.Ranges[rank] {
			own = append(own, payload[r.Offset:r.Offset+r.Length]...)
		}
		if err := w.Arena(s.Instance, func(mem []byte) error {
			for _, e := range s.Extents[rank] {
				own = own[copy(mem[e.Offset:e.Offset+e.Length], own):]
			}
			return nil
		}); err != nil || len(own) != 0 {
			f.t.Fatalf("rank %d: %d bytes do not fit its extents, %v", rank, len(own), err)
		}
		for _, r := range s.Ranges[rank] {
			half := r.Length/2 + 1
			w.Stored(id, []kvcache.Range{{Offset: r.Offset, Length: half}})
			if half < r.Length {
				rest = append(rest, func() { w.Stored(id, []kvcache.Range{{Offset: r.Offset + half, Length: r.Length - half}}) })
			}
		}
	}
	return func() {
		for _, f := range rest {
			f()
		}
	}
}

// readCells gives how many elements of a ready claim this engine has, over all
// ranks, or the first that is not what want says.
func (f *fake) readCells(id string, tokens int, v enginesock.ClaimState, want cells) (int, error) {
	f.t.Helper()
	_, inst := f.sched.Poll(id)
	size, n := int64(f.fp.Storage.DType.Size()), 0
	for rank, w := range f.work {
		err := w.Arena(inst, func(mem []byte) error {
			var got []byte
			for _, e := range v.Extents[rank] {
				got = append(got, mem[e.Offset:e.Offset+e.Length]...)
			}
			place := func(at int64) int64 { // in got; -1: not claimed
				before := int64(0)
				for _, r := range v.Ranges {
					if at >= r.Offset && at < r.Offset+r.Length {
						return before + at - r.Offset
					}
					before += r.Length
				}
				return -1
			}
			var bad error
			err := eachCell(&f.fp, tokens, rank, func(at int64, layer, head, token int, part kvcache.Part, dim int) {
				i := place(at)
				if i < 0 || bad != nil {
					return
				}
				n++
				if b := got[i+size-1]; b != want(layer, head, token, part, dim) {
					bad = fmt.Errorf("rank %d layer %d head %d token %d part %d dim %d is %#x", rank, layer, head, token, part, dim, b)
				}
			})
			if err != nil {
				return err
			}
			return bad
		})
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// elements is how many elements all ranks of an engine keep of a prompt.
func elements(f *fake, tokens int) int {
	n := 0
	for rank := range f.fp.Ranks.Tensor {
		_ = eachCell(&f.fp, tokens, rank, func(int64, int, int, int, kvcache.Part, int) { n++ })
	}
	return n
}
