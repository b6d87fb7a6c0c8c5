package sched

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

func fingerprint(t *rapid.T) kvcache.Fingerprint {
	m, err := refmodel.Lookup("moai/seeded")
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Fingerprint(1, formatWith(rapid.SampledFrom([]int{1, 7, 16, 64, 200}).Draw(t, "block")))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Whatever sequences do, no block has two owners, none is lost, and every
// position that the next token sees is kept.
func TestBlocksHaveOneOwner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fp := fingerprint(t)
		p := newPool(400)
		live := make([]tables, 4)
		computed := make([]int, 4)
		for i := range live {
			live[i] = newTables(&fp)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, 3).Draw(t, "sequence")
			switch s := &live[i]; rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				s.release(p)
				computed[i] = 0
			case 1:
				pl, err := fp.PayloadFor(rapid.IntRange(1, 900).Draw(t, "loaded"))
				if err != nil {
					t.Fatal(err)
				}
				if computed[i] == 0 && !s.held() && forPayload(pl) <= len(p.free) {
					s.fill(p, pl)
					computed[i] = pl.Tokens - 1
				}
			default:
				to := computed[i] + rapid.IntRange(1, 150).Draw(t, "tokens")
				if s.missing(to) > len(p.free) {
					continue
				}
				s.grow(p, to)
				if s.missing(to) != 0 {
					t.Fatal("grown tables miss blocks")
				}
				computed[i] = to
				s.slide(p, to)
			}
			check(t, &fp, p, live, computed)
		}
	})
}

func check(t *rapid.T, fp *kvcache.Fingerprint, p *pool, live []tables, computed []int) {
	owner := map[int]bool{}
	for _, id := range p.free {
		owner[id] = true
	}
	held := 0
	for i, s := range live {
		for g, group := range fp.Groups {
			for b, id := range s.blocks[g] {
				if id == noBlock {
					first := max(0, computed[i]-group.Window+1)
					if group.Kind == kvcache.GroupFull || (b+1)*fp.Storage.BlockSize > first {
						t.Fatalf("block %d of group %d is gone at %d tokens", b, g, computed[i])
					}
					continue
				}
				if owner[id] {
					t.Fatalf("block %d has two owners", id)
				}
				owner[id] = true
				held++
			}
		}
	}
	if held+len(p.free) != p.total {
		t.Fatalf("%d held and %d free of %d", held, len(p.free), p.total)
	}
}

func TestOneRequestNeverHoldsMoreThanAnnounced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fp := fingerprint(t)
		chunk := rapid.IntRange(1, 600).Draw(t, "chunk")
		total := rapid.IntRange(1, 1500).Draw(t, "tokens")
		p := newPool(mostBlocks(&fp, total, chunk))
		s := newTables(&fp)
		for at := 0; at < total; {
			at = min(total, at+chunk)
			if s.missing(at) > len(p.free) {
				t.Fatalf("%d blocks are not enough at token %d of %d", p.total, at, total)
			}
			s.grow(p, at)
			s.slide(p, at)
		}
	})
}

func formatWith(block int) refmodel.Format {
	f := refmodel.DefaultFormat()
	f.BlockSize = block
	return f
}
