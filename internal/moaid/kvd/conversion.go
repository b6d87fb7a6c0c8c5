package kvd

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache/convert"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
)

// conversion is how a claimant gets what an engine stores.
type conversion struct {
	to      format // of the claimant
	verdict kvcompat.Verdict
	text    string // for the operator
	c       *convert.Converter
}

// lossless reports whether a chunk in which a value would change must not be sent.
func (c *conversion) lossless() bool { return c.verdict.Class != kvcompat.Lossy }

// A claimant's format may make payloads of other sizes: wider elements, larger
// blocks that the prompt does not fill, padding. Beyond this nobody's cache is.
const (
	maxGrowth = 16
	freeBytes = 256 << 20
)

var errTooLarge = errors.New("the claimant's format makes a payload that is out of all proportion")

// view gives how the claimant sees a transfer, and the bytes that travel if it
// needs all.
func (c *conversion) view(log *slog.Logger, t *sending) (transfer.View, int64, error) {
	p, err := c.to.PayloadFor(t.tokens)
	if err != nil {
		return transfer.View{}, 0, err
	}
	stored := int64(0)
	for _, r := range t.ranks {
		stored += r.own.Bytes()
	}
	total := c.to.WireBytes(p, 0)
	if total/maxGrowth > stored+freeBytes/maxGrowth {
		return transfer.View{}, 0, fmt.Errorf("%w: %d bytes for %d that are stored", errTooLarge, total, stored)
	}
	v := transfer.View{Ranks: c.to.Ranks.Tensor, Bytes: p.Bytes, Available: func(s []transfer.Set) []transfer.Set { return s }}
	if c.c.Identity() {
		return v, total, nil
	}
	v.Available = func(stored []transfer.Set) []transfer.Set {
		in := make([][]kvcache.Range, len(stored))
		for i, s := range stored {
			in[i] = s
		}
		got, err := c.c.Available(t.tokens, in)
		if err != nil { // the converter was made for these formats and this length
			log.Error("what can be converted is not known", "transfer", t.id, "error", err)
			return nil
		}
		out := make([]transfer.Set, len(got))
		for i, rs := range got {
			out[i] = transfer.Ascending(rs)
		}
		return out
	}
	return v, total, nil
}

// conversionText is empty until somebody has claimed.
func (t *sending) conversionText() string {
	if t.conversion == nil {
		return ""
	}
	return t.conversion.text
}

// fill makes the bytes of a chunk. The caller holds all leases.
func (t *sending) fill(c *conversion, out []byte, e transfer.SendChunk) (convert.Count, error) {
	return c.c.Fill(out, t.tokens, e.Rank, e.Offset, func(rank int, offset int64, out []byte) error {
		if rank < 0 || rank >= len(t.ranks) {
			return fmt.Errorf("the engine has no rank %d", rank)
		}
		v, err := t.ranks[rank].view(offset, int64(len(out)))
		if err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
		for _, b := range v {
			out = out[copy(out, b):]
		}
		return nil
	})
}

// hold keeps the pages of all ranks until drop.
func (t *sending) hold() bool {
	for i, r := range t.ranks {
		if !r.lease.Hold() {
			for _, q := range t.ranks[:i] {
				q.lease.Drop()
			}
			return false
		}
	}
	return true
}

func (t *sending) drop() {
	for _, r := range t.ranks {
		r.lease.Drop()
	}
}
