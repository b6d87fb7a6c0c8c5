package transformer

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

// Cache is the paged KV memory of one rank of an engine, in the physical order that
// its format names. Block ids are shared by all groups: an id has room for a page of
// each layer of whichever group holds it.
type Cache struct {
	fp     kvcache.Fingerprint
	rank   int
	blocks int
	mem    memory
	data   []byte
	layers []layerCache // by model layer
}

// layerCache is where a layer's pages are, and how its elements are encoded.
type layerCache struct {
	group, base int
	codec       [2][]codec // of K and of V, by the rank's head
}

// NewCache makes memory for blocks blocks of the model's rank. Factors of elements are
// those of the model's weights, whatever weights the fingerprint claims.
func (m *Model) NewCache(fp kvcache.Fingerprint, blocks int) (*Cache, error) {
	if err := fp.Validate(); err != nil {
		return nil, err
	}
	switch {
	case !reflect.DeepEqual(fp.Groups, m.model.Config.Groups()):
		return nil, fmt.Errorf("the format is not of model %s: its groups are %+v", m.model.Name, fp.Groups)
	case fp.Ranks.Tensor != m.shard.size || fp.Ranks.Pipeline != 1:
		return nil, fmt.Errorf("the format is of %d tensor ranks and %d stages, the model of %d ranks", fp.Ranks.Tensor, fp.Ranks.Pipeline, m.shard.size)
	case !fp.Storage.Packing.Known():
		return nil, fmt.Errorf("positions of packing %q are not known", fp.Storage.Packing)
	case !slices.Contains(refmodel.DTypes(), fp.Storage.DType) || !slices.Contains(refmodel.ScaleKinds(), fp.Storage.Scales.Kind):
		return nil, fmt.Errorf("the reference engine keeps no elements of %s with scales of kind %s", fp.Storage.DType, fp.Storage.Scales.Kind)
	}
	c := &Cache{fp: fp, rank: m.shard.rank, blocks: blocks, layers: make([]layerCache, m.model.Config.Layers)}
	slots := 0
	for _, g := range fp.Groups {
		slots = max(slots, len(g.Layers))
	}
	c.mem = newMemory(&c.fp, slots, blocks)
	c.data = make([]byte, c.mem.size)
	factors := m.model.Factors(m.seed, fp.Storage.Scales.Kind)
	for g := range fp.Groups {
		for slot, layer := range fp.Groups[g].Layers {
			l := layerCache{group: g, base: slot * c.mem.slot}
			for part := range l.codec {
				for h := range c.mem.part[part].head {
					f := factors.Of(layer, kvcache.Part(part), fp.FirstHead(g, m.shard.rank)+h)
					if fp.Storage.Scales.Doubled {
						f *= 2
					}
					l.codec[part] = append(l.codec[part], newCodec(fp.Storage.DType, f))
				}
			}
			c.layers[layer] = l
		}
	}
	return c, nil
}

// Fingerprint is the format of the cache.
func (c *Cache) Fingerprint() kvcache.Fingerprint { return c.fp }

// Rank is the tensor-parallel rank whose heads the cache has.
func (c *Cache) Rank() int { return c.rank }

// write encodes and stores keys and values of one token of one layer, which are of the
// rank's heads, one after the other.
func (c *Cache) write(layer int, tables [][]int, pos int, k, v []float32) {
	l := &c.layers[layer]
	bs := c.fp.Storage.BlockSize
	page := c.data[l.base+tables[l.group][pos/bs]*c.mem.block:]
	for part, x := range [2][]float32{k, v} {
		a := &c.mem.part[part]
		for h, head := range a.head {
			codec, slot := &l.codec[part][h], page[head+a.token[pos%bs]:]
			for d, at := range a.dim {
				codec.put(slot[at:], x[h*len(a.dim)+d])
			}
		}
	}
}

// read decodes K or V of one head and position to dst.
func (c *Cache) read(l *layerCache, part kvcache.Part, tables [][]int, head, pos int, dst []float32) {
	a, codec, bs := &c.mem.part[part], &l.codec[part][head], c.fp.Storage.BlockSize
	src := c.data[l.base+tables[l.group][pos/bs]*c.mem.block+a.head[head]+a.token[pos%bs]:]
	if a.row {
		codec.decode(dst[:len(a.dim)], src)
		return
	}
	codec.decodeAt(dst[:len(a.dim)], src, a.dim)
}

// gather reads one head's keys and values of positions first to last-1. values is
// blocked as kernel.Attend wants it, with stride last-first; of latent vectors, values
// are their first elements.
func (c *Cache) gather(s *scratch, layer int, tables [][]int, head, first, last int, keys, values []float32) {
	l := &c.layers[layer]
	n, kd, vd := last-first, len(c.mem.part[kvcache.Key].dim), len(c.mem.part[kvcache.Value].dim)
	row := s.take(4, vd)
	for j := range n {
		key := keys[j*kd : (j+1)*kd]
		c.read(l, kvcache.Key, tables, head, first+j, key)
		value := key[:len(values)/n]
		if vd > 0 {
			value = row
			c.read(l, kvcache.Value, tables, head, first+j, value)
		}
		for d := 0; d < len(value); d += 8 {
			*(*[8]float32)(values[(d/8*n+j)*8:]) = [8]float32(value[d:])
		}
	}
}
