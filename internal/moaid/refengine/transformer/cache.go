package transformer

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/kernel"
)

// Cache is the paged KV memory of an engine. Block ids are shared by all groups:
// an id has room for a page of each layer of whichever group holds it.
type Cache struct {
	fp     kvcache.Fingerprint
	blocks int
	page   int
	slots  int // pages a block: layers of the largest group
	data   []byte
	where  []place // by model layer
}

type place struct{ group, slot int }

// NewCache makes memory for blocks blocks of the model's rank. Factors of elements are
// those of the model's weights, whatever weights the fingerprint claims.
func (m *Model) NewCache(fp kvcache.Fingerprint, blocks int) (*Cache, error) {
	if err := fp.Validate(); err != nil {
		return nil, err
	}
	if fp.Storage.Order != kvcache.OrderLBHNC || fp.Storage.DType != kvcache.BF16 || fp.Ranks.Tensor != 1 {
		return nil, fmt.Errorf("the reference engine keeps bf16 pages of order LBHNC on one rank, not %s, %s, %d", fp.Storage.DType, fp.Storage.Order, fp.Ranks.Tensor)
	}
	c := &Cache{fp: fp, blocks: blocks, page: int(fp.PageBytes(0))}
	for g, group := range fp.Groups {
		c.slots = max(c.slots, len(group.Layers))
		for slot, layer := range group.Layers {
			for len(c.where) <= layer {
				c.where = append(c.where, place{group: -1})
			}
			c.where[layer] = place{group: g, slot: slot}
		}
	}
	c.data = make([]byte, c.slots*blocks*c.page)
	return c, nil
}

// Fingerprint is the format of the cache.
func (c *Cache) Fingerprint() kvcache.Fingerprint { return c.fp }

// Page is the memory of one layer's page of a block, [KV head][token][K | V]
// in little-endian bfloat16. slot is the layer's index in its group.
func (c *Cache) Page(slot, block int) []byte {
	at := (slot*c.blocks + block) * c.page
	return c.data[at : at+c.page : at+c.page]
}

// ReadPage copies one layer's page of a block to dst in the form that a payload has,
// of PageBytes bytes. slot is the layer's index in its group. Pages of different blocks
// may be read and written at the same time.
func (c *Cache) ReadPage(group, slot, block int, dst []byte) {
	copy(dst, c.Page(slot, block))
}

// WritePage is the reverse of ReadPage.
func (c *Cache) WritePage(group, slot, block int, src []byte) {
	copy(c.Page(slot, block), src)
}

// write rounds and stores the keys and values of one token of one layer.
func (c *Cache) write(layer int, tables [][]int, pos int, k, v []float32) {
	w := c.where[layer]
	page := c.Page(w.slot, tables[w.group][pos/c.fp.Storage.BlockSize])
	dim := c.fp.Groups[w.group].KeyDim
	for h := range c.fp.Groups[w.group].Heads {
		at := (h*c.fp.Storage.BlockSize + pos%c.fp.Storage.BlockSize) * 4 * dim
		for i, x := range k[h*dim : (h+1)*dim] {
			binary.LittleEndian.PutUint16(page[at+2*i:], kernel.ToBF16(x))
		}
		at += 2 * dim
		for i, x := range v[h*dim : (h+1)*dim] {
			binary.LittleEndian.PutUint16(page[at+2*i:], kernel.ToBF16(x))
		}
	}
}

// gather reads one head's keys and values of positions first to last-1. values
// is blocked as kernel.Attend wants it, with stride last-first.
func (c *Cache) gather(layer int, tables [][]int, head, first, last int, keys, values []float32) {
	w := c.where[layer]
	dim, bs, n := c.fp.Groups[w.group].KeyDim, c.fp.Storage.BlockSize, last-first
	for pos := first; pos < last; {
		page := c.Page(w.slot, tables[w.group][pos/bs])
		end := min(last, (pos/bs+1)*bs)
		for ; pos < end; pos++ {
			at := (head*bs + pos%bs) * 4 * dim
			src := page[at : at+4*dim]
			j := pos - first
			k := keys[j*dim : (j+1)*dim]
			for i := 0; i+4 <= len(k); i += 4 {
				widen((*[4]float32)(k[i:]), binary.LittleEndian.Uint64(src[2*i:]))
			}
			src = src[2*dim:]
			for d := 0; d < dim; d += 8 {
				v := values[(d/8*n+j)*8:]
				widen((*[4]float32)(v), binary.LittleEndian.Uint64(src[2*d:]))
				widen((*[4]float32)(v[4:]), binary.LittleEndian.Uint64(src[2*d+8:]))
			}
		}
	}
}

// widen decodes four bfloat16.
func widen(out *[4]float32, x uint64) {
	out[0] = math.Float32frombits(uint32(x) << 16)
	out[1] = math.Float32frombits(uint32(x) & 0xffff0000)
	out[2] = math.Float32frombits(uint32(x>>32) << 16)
	out[3] = math.Float32frombits(uint32(x>>32) & 0xffff0000)
}
