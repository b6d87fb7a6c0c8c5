package transformer

// ReadPage copies one layer's page of a block to dst in the form that a payload has,
// of PageBytes bytes, with zero padding. slot is the layer's index in its group. Pages
// of different blocks may be read and written at the same time.
func (c *Cache) ReadPage(group, slot, block int, dst []byte) {
	dst = dst[:c.fp.PageBytes(group)]
	src := c.data[slot*c.mem.slot+block*c.mem.block:]
	clear(dst[len(dst)-c.fp.Storage.Padding:])
	if c.mem.runs == nil {
		copy(dst[:len(dst)-c.fp.Storage.Padding], src)
		return
	}
	for _, r := range c.mem.runs {
		copy(dst[r.page:r.page+r.length], src[r.memory:])
	}
}

// WritePage is the reverse of ReadPage; the padding of src is not read.
func (c *Cache) WritePage(group, slot, block int, src []byte) {
	src = src[:c.fp.PageBytes(group)]
	dst := c.data[slot*c.mem.slot+block*c.mem.block:]
	if c.mem.runs == nil {
		copy(dst, src[:len(src)-c.fp.Storage.Padding])
		return
	}
	for _, r := range c.mem.runs {
		copy(dst[r.memory:r.memory+r.length], src[r.page:])
	}
}
