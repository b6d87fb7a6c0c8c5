//go:build moai_damage

package kvd

import (
	"os"
	"strconv"
	"strings"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

// reachEnv says which pages "swap" may replace: a number for each layer, parted
// by commas, of tokens before the prompt's last that decode reads.
const reachEnv = "MOAI_KVD_FAULT_REACH"

// swap overwrites one page that decode reads with another of the same layer. The
// number of tokens decides which, so that a run can be repeated.
func (d *Daemon) swap(t *receiving) {
	fp, tokens := t.replica.engine.reg.Fingerprint, t.m.Tokens()
	for rank := range fp.Ranks.Tensor {
		to, from, ok := swapped(fp, tokens, strings.Split(os.Getenv(reachEnv), ","))
		if !ok {
			d.log.Error("TEST BUILD: no page to replace", "transfer", t.id, "tokens", tokens)
			return
		}
		dst, src := t.land.views(rank, to), t.land.views(rank, from)
		page := make([]byte, 0, from.Length)
		for _, b := range src {
			page = append(page, b...)
		}
		if int64(len(page)) != from.Length {
			d.log.Error("TEST BUILD: a page is not leased", "transfer", t.id, "rank", rank, "offset", from.Offset)
			return
		}
		for _, b := range dst {
			page = page[copy(b, page):]
		}
		d.log.Warn("TEST BUILD: replaced a page", "transfer", t.id, "rank", rank, "offset", to.Offset, "by", from.Offset)
	}
}

// swapped picks a page that decode reads, and another of the same layer all of
// whose slots are tokens'.
func swapped(fp kvcache.Fingerprint, tokens int, reach []string) (to, from kvcache.Range, ok bool) {
	p, err := fp.PayloadFor(tokens)
	if err != nil {
		return to, from, false
	}
	layer := tokens % len(reach)
	back, err := strconv.Atoi(reach[layer])
	if err != nil || back < 1 || back >= tokens {
		return to, from, false
	}
	for _, s := range p.Sections {
		for i, l := range fp.Groups[s.Group].Layers {
			if l != layer {
				continue
			}
			page := func(block int) kvcache.Range {
				return kvcache.Range{Offset: s.Offset + int64(block)*s.BlockBytes + int64(i)*fp.PageBytes(s.Group), Length: fp.PageBytes(s.Group)}
			}
			read, full := (tokens-1-back)/fp.Storage.BlockSize-s.FirstBlock, tokens/fp.Storage.BlockSize-s.FirstBlock
			if read < 0 || full < 1 || full == 1 && read == 0 {
				return to, from, false
			}
			other := tokens / len(reach) % full
			if other == read {
				other = (other + 1) % full
			}
			return page(read), page(other), true
		}
	}
	return to, from, false
}
