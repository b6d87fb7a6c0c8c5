//go:build moai_damage

package kvd

import (
	"encoding/binary"
	"hash/fnv"
	"os"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// faultEnv chooses the fault of the test build: "flip" changes one bit of one
// received slot after verification, "swap" puts another page in the place of one,
// "noop" writes no bytes at all.
const faultEnv = "MOAI_KVD_FAULT"

// divert clears the pages and gives scratch memory instead, under "noop".
func divert(dst [][]byte) [][]byte {
	if os.Getenv(faultEnv) != "noop" {
		return dst
	}
	out := make([][]byte, len(dst))
	for i, b := range dst {
		clear(b)
		out[i] = make([]byte, len(b))
	}
	return out
}

// damage spoils verified bytes, if the fault is one of those that do.
func (d *Daemon) damage(t *receiving) {
	switch os.Getenv(faultEnv) {
	case "flip":
		d.flip(t)
	case "swap":
		d.swap(t)
	}
}

// flip changes one bit that the engine will use: of a token's slot that is
// neither padding, nor outside the window, nor the last token's, which the
// engine computes again. The id decides which.
func (d *Daemon) flip(t *receiving) {
	h := fnv.New64a()
	_, _ = h.Write(t.id[:])
	fp, tokens := t.replica.engine.reg.Fingerprint, t.m.Tokens()
	seed := h.Sum64()
	for range 64 {
		seed = seed*6364136223846793005 + 1442695040888963407
		rank := int(seed>>33) % fp.Ranks.Tensor
		off, ok := usedByte(fp, tokens, seed)
		if !ok {
			continue
		}
		if v := t.land.views(rank, kvcache.Range{Offset: off, Length: 1}); len(v) == 1 {
			v[0][0] ^= 1 << (seed >> 61)
			d.log.Warn("TEST BUILD: flipped a bit", "transfer", t.id, "rank", rank, "offset", off)
			return
		}
	}
}

// usedByte picks a payload byte of a slot that decode reads.
func usedByte(fp kvcache.Fingerprint, tokens int, seed uint64) (int64, bool) {
	p, err := fp.PayloadFor(tokens)
	if err != nil || tokens < 2 || !fp.Storage.Packing.Known() {
		return 0, false
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	pick := func(n int) int {
		h := fnv.New64a()
		_, _ = h.Write(b[:])
		v := h.Sum64()
		binary.LittleEndian.PutUint64(b[:], v)
		return int((v >> 17) % uint64(n))
	}
	s := p.Sections[pick(len(p.Sections))]
	g := fp.Groups[s.Group]
	first := 0
	if g.Kind == kvcache.GroupSliding {
		first = max(0, tokens-g.Window)
	}
	if first >= tokens-1 {
		return 0, false
	}
	token := first + pick(tokens-1-first)
	block, slot := token/fp.Storage.BlockSize-s.FirstBlock, token%fp.Storage.BlockSize
	part, dim := kvcache.Key, pick(g.KeyDim+g.ValueDim)
	if dim >= g.KeyDim {
		part, dim = kvcache.Value, dim-g.KeyDim
	}
	in := fp.At(s.Group, pick(fp.RankHeads(s.Group)), slot, part, dim) + int64(pick(fp.Storage.DType.Size()))
	return s.Offset + int64(block)*s.BlockBytes + int64(pick(len(g.Layers)))*fp.PageBytes(s.Group) + in, true
}

// views gives the memory of a payload range that is leased. Only for a range
// that nothing writes to.
func (l *landing) views(rank int, r kvcache.Range) [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ranks[rank].views(r)
}
