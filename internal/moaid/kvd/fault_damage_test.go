//go:build moai_damage

package kvd

import (
	"bytes"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcompat"
)

// differences counts the bits in which a ready claim differs from what was sent.
func (f *fake) differences(id string, v enginesock.ClaimState) (bits, zeros int) {
	_, inst := f.sched.Poll(id)
	for rank, w := range f.work {
		_ = w.Arena(inst, func(mem []byte) error {
			i := int64(0)
			for _, e := range v.Extents[rank] {
				for _, b := range mem[e.Offset : e.Offset+e.Length] {
					for x := b ^ slot(id, rank, i); x != 0; x &= x - 1 {
						bits++
					}
					if b == 0 {
						zeros++
					}
					i++
				}
			}
			return nil
		})
	}
	return bits, zeros
}

func TestFlipChangesOneBit(t *testing.T) {
	t.Setenv(faultEnv, "flip")
	_, _, pe, de := twoNodes(t, api.EncryptionAEAD, nil)
	for _, tokens := range []int{2, 17, 300} {
		id, hash := newID(), tokenHash(tokens, "a")
		pe.prefill(id, tokens, hash, true)
		de.claim(id, tokens, hash, 0)
		if bits, _ := de.differences(id, de.verdict(id)); bits != 1 {
			t.Errorf("%d tokens: %d bits differ", tokens, bits)
		}
		de.load(id, true)
	}
}

func TestNoopWritesNothing(t *testing.T) {
	t.Setenv(faultEnv, "noop")
	_, d, pe, de := twoNodes(t, api.EncryptionAEAD, nil)
	id, hash := newID(), tokenHash(300, "a")
	fp := testFingerprint()
	p := must[kvcache.Payload](t, "payload")(fp.PayloadFor(300))
	pe.prefill(id, 300, hash, true)
	de.claim(id, 300, hash, 0)
	if _, zeros := de.differences(id, de.verdict(id)); int64(zeros) != 2*p.Bytes {
		t.Errorf("%d of %d bytes are zero", zeros, 2*p.Bytes)
	}
	if x, _ := d.find(id); x.BytesMoved != 2*p.Bytes {
		t.Errorf("the no-op must look like a transfer: %+v", x)
	}
}

// damaged runs a transfer between engines of the formats of each unlike pair under
// a fault and gives how many elements decode has that prefill did not send.
func damaged(t *testing.T, check func(t *testing.T, name string, de *fake, wrong, all int)) {
	for name, c := range unlike {
		t.Run(name, func(t *testing.T) {
			_, _, pe, de := formats(t, c.prefill, c.decode, kvcompat.Options{})
			const tokens = 300
			id, hash := newID(), tokenHash(tokens, "a")
			pe.prefill(id, tokens, hash, false)
			de.claim(id, tokens, hash, 0)
			pe.storeCells(id, tokens, mixed(id))()
			v := de.verdict(id)
			if v.Verdict != enginesock.Ready {
				t.Fatalf("%+v", v)
			}
			wrong := 0
			seen := de.bytesOf(id, v)
			for rank := range de.fp.Ranks.Tensor {
				_ = eachCell(&de.fp, tokens, rank, func(at int64, layer, head, token int, part kvcache.Part, dim int) {
					size := int64(de.fp.Storage.DType.Size())
					cell := make([]byte, size)
					cell[size-1] = mixed(id)(layer, head, token, part, dim)
					if !bytes.Equal(seen[rank][at:at+size], cell) {
						wrong++
					}
				})
			}
			de.load(id, true)
			check(t, name, de, wrong, elements(de, tokens))
		})
	}
}

// bytesOf gives each rank's whole payload of a ready claim that had no prefix.
func (f *fake) bytesOf(id string, v enginesock.ClaimState) [][]byte {
	f.t.Helper()
	_, inst := f.sched.Poll(id)
	out := make([][]byte, len(f.work))
	for rank, w := range f.work {
		if err := w.Arena(inst, func(mem []byte) error {
			for _, e := range v.Extents[rank] {
				out[rank] = append(out[rank], mem[e.Offset:e.Offset+e.Length]...)
			}
			return nil
		}); err != nil {
			f.t.Fatal(err)
		}
	}
	return out
}

func TestFlipIsFeltInEveryFormat(t *testing.T) {
	t.Setenv(faultEnv, "flip")
	damaged(t, func(t *testing.T, _ string, _ *fake, wrong, _ int) {
		if wrong != 1 {
			t.Errorf("%d elements differ", wrong)
		}
	})
}

func TestNoopWritesNothingOnAnyRank(t *testing.T) {
	t.Setenv(faultEnv, "noop")
	damaged(t, func(t *testing.T, _ string, _ *fake, wrong, all int) {
		if wrong < all*9/10 { // some elements are zero
			t.Errorf("%d of %d elements differ", wrong, all)
		}
	})
}

func TestSwapIsFeltOnAllRanks(t *testing.T) {
	t.Setenv(faultEnv, "swap")
	t.Setenv(reachEnv, "150,20,150") // layer 1 has a window
	damaged(t, func(t *testing.T, _ string, de *fake, wrong, all int) {
		if wrong < de.fp.Ranks.Tensor || wrong > all/2 {
			t.Errorf("%d of %d elements differ", wrong, all)
		}
	})
}
