// Package convert turns payloads of one KV cache format into payloads of
// another: the oracle, which moves one element at a time. It is pure. Whether a
// conversion is allowed is not decided here but by kvcompat.
//
// Every element of a destination page is found in the source by what it is:
// layer, head, token, part and dimension. Destination slots of tokens outside the
// prompt, or before the source's window, are zero, as is the padding of pages.
package convert

import (
	"fmt"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache/element"
)

// Count is what a conversion could not preserve, in elements.
type Count struct {
	Clipped int64 // beyond the range of the destination: the largest value was written
	Rounded int64 // within the range, but not representable: the nearest was written
}

// Add sums counts.
func (c Count) Add(o Count) Count { return Count{c.Clipped + o.Clipped, c.Rounded + o.Rounded} }

// Changed is the number of elements whose value is not what it was.
func (c Count) Changed() int64 { return c.Clipped + c.Rounded }

// Source reads payload bytes of a source rank: len(out) bytes from offset.
type Source func(rank int, offset int64, out []byte) error

// Converter converts payloads of one pair of formats. It is safe for concurrent use.
type Converter struct {
	src, dst kvcache.Fingerprint
	identity bool
	whole    bool // pages move whole: the positions of their elements are not known
	recoder  *element.Recoder
	bytes    [256]byte   // what recoder makes of elements of one byte, where that is one byte
	groups   []groupPlan // by destination group
}

// groupPlan is where the content of a destination group comes from.
type groupPlan struct {
	layers []origin      // by position of the layer in the destination group
	from   map[int]*lens // by source group
	to     positions
}

// origin is the place of a layer in the source.
type origin struct{ group, index int }

// lens is how a source group is seen from a destination group.
type lens struct {
	at    *positions
	same  bool // dims of a row are neighbours in both and keep their codes
	bytes bool // they are neighbours of one byte each, and change their codes
}

// New prepares a conversion. It refuses what has no meaning element by element:
// different models' shapes, opaque elements or packings that differ, unknown scales.
func New(src, dst kvcache.Fingerprint) (*Converter, error) {
	for name, f := range map[string]*kvcache.Fingerprint{"source": &src, "destination": &dst} {
		if err := f.Validate(); err != nil {
			return nil, fmt.Errorf("the %s describes no cache: %w", name, err)
		}
		if f.Ranks.Pipeline != 1 {
			return nil, fmt.Errorf("the %s has %d pipeline stages: only one can be converted", name, f.Ranks.Pipeline)
		}
	}
	recoder, err := elements(&src.Storage, &dst.Storage)
	if err != nil {
		return nil, err
	}
	c := &Converter{src: src, dst: dst, recoder: recoder, whole: src.Storage.Opaque() || dst.Storage.Opaque()}
	if recoder != nil && src.Storage.DType.Size() == 1 {
		for code := range c.bytes {
			to, _ := recoder.Recode(uint32(code))
			c.bytes[code] = byte(to)
		}
	}
	if c.whole && src.Storage != dst.Storage {
		return nil, fmt.Errorf("pages of %s as %s can only be copied whole, to a cache that stores the same", src.Storage.DType, src.Storage.Packing)
	}
	if err := c.pairLayers(); err != nil {
		return nil, err
	}
	c.identity = c.sameBytes()
	return c, nil
}

// pairLayers finds each destination layer in the source.
func (c *Converter) pairLayers() error {
	origins := map[int]origin{}
	for g := range c.src.Groups {
		for i, l := range c.src.Groups[g].Layers {
			origins[l] = origin{g, i}
		}
	}
	c.groups = make([]groupPlan, len(c.dst.Groups))
	tables := make([]*positions, len(c.src.Groups)) // shared by all that look at a group
	n := 0
	for g := range c.dst.Groups {
		group := &c.dst.Groups[g]
		plan := groupPlan{from: map[int]*lens{}, to: c.positions(&c.dst, g)}
		for _, l := range group.Layers {
			o, ok := origins[l]
			if !ok {
				return fmt.Errorf("the source has no layer %d", l)
			}
			if err := c.pairable(o.group, g); err != nil {
				return fmt.Errorf("layer %d: %w", l, err)
			}
			if plan.from[o.group] == nil {
				if tables[o.group] == nil {
					p := c.positions(&c.src, o.group)
					tables[o.group] = &p
				}
				at := tables[o.group]
				rows := c.recoder != nil && at.contiguous && plan.to.contiguous
				plan.from[o.group] = &lens{at: at, same: rows && c.recoder.Keeps(), bytes: rows && !c.recoder.Keeps() && at.size == 1 && plan.to.size == 1}
			}
			plan.layers = append(plan.layers, o)
			n++
		}
		c.groups[g] = plan
	}
	if n != len(origins) {
		return fmt.Errorf("the source has %d layers, the destination %d", len(origins), n)
	}
	return nil
}

// pairable reports why layers of a source group cannot become layers of a
// destination group.
func (c *Converter) pairable(from, to int) error {
	s, d := &c.src.Groups[from], &c.dst.Groups[to]
	switch {
	case s.Heads != d.Heads || s.KeyDim != d.KeyDim || s.ValueDim != d.ValueDim:
		return fmt.Errorf("%d heads of %d and %d elements are no %d heads of %d and %d", s.Heads, s.KeyDim, s.ValueDim, d.Heads, d.KeyDim, d.ValueDim)
	case (s.Kind == kvcache.GroupLatent) != (d.Kind == kvcache.GroupLatent):
		return fmt.Errorf("kind %s is not %s", s.Kind, d.Kind)
	case s.Kind == kvcache.GroupSliding && (d.Kind != kvcache.GroupSliding || s.Window != d.Window):
		return fmt.Errorf("the last %d tokens are not what the destination keeps", s.Window)
	case c.whole && c.src.RankHeads(from) != c.dst.RankHeads(to):
		return fmt.Errorf("%d heads in a page that can only be copied whole are not %d", c.src.RankHeads(from), c.dst.RankHeads(to))
	}
	return nil
}

// Identity reports whether payloads are the same bytes on the same ranks.
func (c *Converter) Identity() bool { return c.identity }

func (c *Converter) sameBytes() bool {
	s, d := &c.src, &c.dst
	if s.Ranks != d.Ranks || s.Storage.BlockSize != d.Storage.BlockSize || s.Storage.Padding != d.Storage.Padding || len(s.Groups) != len(d.Groups) {
		return false
	}
	if !c.whole && !c.recoder.Keeps() {
		return false
	}
	for g := range d.Groups {
		plan := &c.groups[g]
		if s.Groups[g].Kind != d.Groups[g].Kind || len(s.Groups[g].Layers) != len(plan.layers) {
			return false
		}
		for i, o := range plan.layers {
			if o != (origin{g, i}) {
				return false
			}
		}
		if !c.whole && !plan.from[g].at.equal(&plan.to) {
			return false
		}
	}
	return true
}
